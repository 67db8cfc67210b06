"""The files of a YOLO dataset: where its images lie, and the label file of each.

The label file of an image has its name and the ending ``.txt``, in the folder whose path has ``labels`` in
place of the last ``images``, or else beside the image.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from shardmill.beam_jobs.sources.class_names import plain_name
from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.beam_jobs.sources.recognition.glance import IMAGE_ENDINGS
from shardmill.infra.storage.locations import composed, stem_of

NAMES_FILES = ("classes.txt", "obj.names", "_darknet.labels")  # of LabelImg, Darknet and Roboflow

_IMAGES, _LABELS, _TEXT = "images", "labels", ".txt"


class Tree:
    """The files of a source that are not ignored.

    Args:
        uris: their URIs, sorted.
        read: returns the content of one of them, or why it cannot be read.

    Attributes:
        uris: their URIs.
        read: as given.
    """

    def __init__(self, uris: Iterable[str], read: Callable[[str], bytes | str]) -> None:
        self.uris = list(uris)
        self.read = read
        self._known = {composed(uri): uri for uri in self.uris}
        self._files = frozenset(self.uris)

    @cached_property
    def _folders(self) -> dict[str, str]:
        """URI of each folder in the composed form -> URI; "" is the source itself."""
        above = {uri.rpartition("/")[0] for uri in self.uris} | {""}
        while deeper := {folder.rpartition("/")[0] for folder in above} - above:
            above |= deeper
        return {composed(folder): folder for folder in above}

    def is_file(self, uri: str) -> bool:
        """Tell whether a URI is that of a file."""
        return uri in self._files

    def images(self, folder: str = "") -> Iterator[str]:
        """The image files of a folder and of those below."""
        prefix = f"{folder}/" if folder else ""
        return (uri for uri in self.uris if uri.startswith(prefix) and uri.lower().endswith(IMAGE_ENDINGS))

    def label_file(self, image: str) -> str | None:
        """Return the URI of the label file of an image; None if it has none."""
        stem = composed(stem_of(image))
        before, mark, behind = f"/{stem}".rpartition(f"/{_IMAGES}/")
        apart = self._known.get(f"{before}/{_LABELS}/{behind}{_TEXT}"[1:]) if mark else None
        return apart or self._known.get(f"{stem}{_TEXT}")

    def label_files(self) -> Iterator[tuple[str, str]]:
        """The text files in folders of labels, and the path of the image of each without its ending."""
        for uri in self.uris:
            before, mark, behind = f"/{stem_of(uri)}".rpartition(f"/{_LABELS}/")
            if mark and uri.endswith(_TEXT) and uri.rpartition("/")[2] not in NAMES_FILES:
                yield uri, f"{before}/{_IMAGES}/{behind}"[1:]

    def find(self, place: str, bases: Iterable[str]) -> str | None:
        """Return the folder or file that a description means by a path; None if it is not in the source.

        Paths are often of another machine. So if a path is nowhere below ``bases``, its end is looked for:
        ``/content/data/train/images`` and ``../train/images`` are ``train/images``.

        Args:
            place: as the description writes it.
            bases: folders that it may begin in.
        """
        path = composed(place.replace("\\", "/"))
        parts = [part for part in path.split("/") if part not in ("", ".")]
        ends = [path, *("/".join(parts[at:]) for at in range(1, len(parts)))]
        for end in ends:
            for base in bases:
                found = posixpath.normpath(posixpath.join(base, end))
                found = "" if found == "." else found
                if (uri := self._known.get(found, self._folders.get(found))) is not None:
                    return uri
        return None


def split_of_folders(image: str) -> str | None:
    """Return the split that the folder below or above ``images`` names, or else the top folder."""
    folders = image.split("/")[:-1]
    if _IMAGES in folders:
        at = len(folders) - 1 - folders[::-1].index(_IMAGES)
        folders = [*folders[at + 1 : at + 2], *folders[max(at - 1, 0) : at]]
    splits = (SPLIT_OF_FOLDER.get(plain_name(folder)) for folder in folders[:2])
    return next((split for split in splits if split is not None), None)
