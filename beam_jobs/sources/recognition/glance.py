"""A glance at a source: the names in its first folders, enough to recognise its kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from beam_jobs.sources.files.folder import SourceFolder
from beam_jobs.sources.files.ignore import IgnorePatterns
from beam_jobs.sources.files.walking import SourceFault

IMAGE_ENDINGS = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".heic",
    ".heif",
)  # fmt: skip

_FOLDERS_LOOKED_INTO = 40
_NAMES_OF_A_FOLDER = 400  # except the top one, whose names are all looked at
_MOST_LEVELS = 3
_NOT_LOOKED_AT = IgnorePatterns((".*", "__MACOSX", "@eaDir"))


@dataclass(frozen=True)
class Recognised:
    """A kind of source that fits.

    Attributes:
        why: what was seen, as the end of a sentence that begins with the kind.
        settings: of the source, nested as in the configuration, that the kind needs.
        is_certain: the source describes itself; what other kinds take its files for does not count.
        image_folders: folders whose images the source describes; "" for the source itself. If all images lie
            in these or in folders that name no class, the folders are no classes.
        is_complete: whether ``settings`` suffice to read the source. A kind that needs further settings is
            chosen only if no other kind describes the images.
    """

    why: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_certain: bool = False
    image_folders: Collection[str] = ()
    is_complete: bool = True


@dataclass(frozen=True)
class Glance:
    """Names in a source.

    Attributes:
        folder: the source.
        files: URIs of files: all of the top folder, and some of the folders below.
    """

    folder: SourceFolder
    files: list[str]

    def ending_in(self, *endings: str) -> list[str]:
        """Return the files with one of these endings (lower case), whatever the case of their names."""
        return [uri for uri in self.files if uri.lower().endswith(endings)]

    @property
    def images(self) -> list[str]:
        """The image files."""
        return self.ending_in(*IMAGE_ENDINGS)

    def head(self, uri: str, length: int) -> bytes:
        """Return the first bytes of a file; none if it cannot be read."""
        try:
            with self.folder.open_container(uri) as file:
                return file.read_at(length, 0)
        except SourceFault:
            return b""

    def in_words(self) -> str:
        """Say what is there: "12 .jpg, 1 .csv"."""
        endings = Counter(PurePosixPath(uri).suffix.lower() or "without an ending" for uri in self.files)
        return ", ".join(f"{count:,} {ending}" for ending, count in endings.most_common(6)) or "nothing"


def glance_at(folder: SourceFolder) -> Glance:
    """Look at the names in a source; if it is limited to some files, at those.

    Raises:
        NotFoundError: there is no such folder or file.
    """
    if folder.only is not None:
        return Glance(folder, [file.uri for file in folder.walk(IgnorePatterns(()))])
    files: list[str] = []
    waiting = [""]
    for _ in range(_FOLDERS_LOOKED_INTO):
        if not waiting:
            break
        prefix = waiting.pop(0)
        in_files, in_folders = folder.names(prefix)
        seen = [name for name in in_files if _NOT_LOOKED_AT.match(name, name) is None]
        files += [f"{prefix}{name}" for name in (seen[:_NAMES_OF_A_FOLDER] if prefix else seen)]
        if prefix.count("/") < _MOST_LEVELS:
            waiting += [f"{prefix}{name}/" for name in in_folders if _NOT_LOOKED_AT.match(name, name) is None]
    return Glance(folder, files)
