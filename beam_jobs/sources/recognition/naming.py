"""What the lines of a text name: images of the source, and which column has their classes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from shardmill.beam_jobs.sources.class_names import plain_name
from shardmill.beam_jobs.sources.recognition.glance import IMAGE_ENDINGS, Glance
from shardmill.beam_jobs.sources.roles import LABEL_NAMES, split_of_words

ANYWHERE = "*"  # images of a list lie in several folders
OF_LABELS = frozenset({
    "annotation", "annotations", "label", "labels", "mask", "masks", "trimaps", "segmentation",
    "segmentations", "gtfine", "groundtruth", "ground_truth", "gt",
})  # fmt: skip
_VARIES = re.compile(r"[0-9a-f-]{12,}|\d+")
_MASK = re.compile(r"[._-](seg|mask|segmentation|label|labels|gt|matte)$", re.IGNORECASE)
_NO_LABELS = frozenset({
    "caption", "captions", "text", "description", "comment", "rle", "rle_mask", "encodedpixels", "mask",
    "boneage", "age", "url", "sentence", "report",
})  # fmt: skip
# Fractions, several numbers, and sentences, unless they begin with the code of a synset.
_NO_CLASS = re.compile(r"(?!n\d{8}\s)(-?\d*\.\d+|-?\d+([ ,]+-?\d+)+|(\S+\s+){6,}\S+)")
_RUN_LENGTHS = frozenset({"encodedpixels", "rle", "rle_mask"})
SUBMISSION = re.compile("submi", re.IGNORECASE)
_HEAD_BYTES = 1 << 16
_MANY_ROWS = 40
_FOLDERS_TRIED = 8
_COLUMNS_TRIED = 10
_COMMON_ENDINGS = ("", ".jpg", ".JPEG", ".png")
# Columns that hold classes besides LABEL_NAMES, in tables of well-known data sets.
_LABEL_NAMES = (*LABEL_NAMES, "labels", "classid", "class_id", "class id", "dx", "finding labels")


@dataclass(frozen=True)
class Place:
    """Where the images lie that some lines name.

    Attributes:
        folder: in which the paths begin; ANYWHERE if they lie in several.
        images: the images that were found.
    """

    folder: str
    images: tuple[str, ...]


class NamedImages:
    """The images of a glance by their names.

    Args:
        glance: at the source.
    """

    def __init__(self, glance: Glance) -> None:
        self._glance = glance
        every = glance.images
        plain = [
            uri for uri in every if not any(plain_name(part) in OF_LABELS for part in uri.split("/")[:-1])
        ]
        self.images = plain or every

    @cached_property
    def _by_name(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for uri in self.images:
            name = uri.rpartition("/")[2]
            for key in {name, name.rpartition(".")[0]}:
                found.setdefault(key, []).append(uri)
        return found

    @cached_property
    def _forms(self) -> Mapping[str, list[str]]:
        """Form of a name, with its numbers left out -> folders of such images."""
        found: dict[str, dict[str, None]] = {}
        for name, uris in self._by_name.items():
            found.setdefault(_VARIES.sub("#", name), {}).update(
                dict.fromkeys(uri.rpartition("/")[0] for uri in uris)
            )
        return {form: list(folders) for form, folders in found.items()}

    def has(self, stem: str) -> bool:
        """Tell whether there is an image of this name, with or without its ending."""
        return stem in self._by_name

    def mask_beside(self) -> str | None:
        """Return an image that is named like the mask of another one in its folder; None if there is none."""
        stems = {uri.rpartition(".")[0] for uri in self.images}
        return next(
            (uri for uri in self.images if _MASK.sub("", stem := uri.rpartition(".")[0]) in stems - {stem}),
            None,
        )

    def place_of(self, values: Sequence[str], split: str | None = None) -> Place | None:
        """Return where the images lie that values name by path or name; None unless most are there.

        Args:
            values: of some lines.
            split: of the images; it decides between folders that have images of these names.
        """
        found = {value: self._folders(value.removeprefix("./")) for value in dict.fromkeys(values)}
        there = {value: folders for value, folders in found.items() if folders}
        if (
            not values
            or values[0] not in there
            or len(found) < len(values)
            or len(there) * 3 < len(found) * 2
        ):
            return None
        shared = set.intersection(*(set(folders) for folders in there.values()))
        if len(shared) > 1:
            shared = {folder for folder in shared if split and split_of_words(folder) == split}
            if len(shared) != 1:
                return None
        if len(shared) == 1:
            (folder,) = shared
            return Place(folder, tuple(folders[folder] for folders in there.values()))
        if any(len(folders) > 1 for folders in there.values()):
            return None
        return Place(ANYWHERE, tuple(uri for folders in there.values() for uri in folders.values()))

    def _folders(self, value: str) -> dict[str, str]:
        """Return folder in which a path begins -> the image that it names there."""
        if not value or value.startswith("/") or "://" in value:
            value = value.lstrip("/") if "://" not in value else ""
        if not value:
            return {}
        name = value.rpartition("/")[2]
        found = {}
        for uri in self._by_name.get(name, ()):
            for path in (uri, uri.rpartition(".")[0]):
                if f"/{path}".endswith(f"/{value}"):
                    found[path.removesuffix(value).rstrip("/")] = uri
        if found:
            return found
        # A glance sees some of the files of a large folder, and some folders.
        depth = value.count("/")
        places = dict.fromkeys(
            "/".join(parts[: len(parts) - depth])
            for folder in self._forms.get(_VARIES.sub("#", name), ())
            if len(parts := folder.split("/") if folder else []) >= depth
        )
        for place in list(places)[:_FOLDERS_TRIED]:
            for ending in _COMMON_ENDINGS if not name.lower().endswith(IMAGE_ENDINGS) else ("",):
                if self._glance.head(uri := f"{place}/{value}{ending}".lstrip("/"), 1):
                    found[place] = uri
        return found


def image_columns(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the columns that may name images, counted from 0: those with names of image files first."""
    width = min((len(row) for row in rows), default=0)
    are_files = [
        rows[0][at].strip().lower().endswith(IMAGE_ENDINGS) for at in range(min(width, _COLUMNS_TRIED))
    ]
    return sorted(range(len(are_files)), key=lambda at: not are_files[at])


def label_column(header: Sequence[str], rows: Sequence[Sequence[str]], image: int) -> int | None:
    """Return the column that holds the classes of images, counted from 0; None if it cannot be told.

    Args:
        header: names of the columns.
        rows: some rows.
        image: column of the images.
    """
    known = {name.strip().lower(): at for at, name in reversed(list(enumerate(header)))}
    for name in _LABEL_NAMES:
        if known.get(name, image) != image:
            return known[name]
    others = [at for at in range(len(header)) if at != image]
    return (
        others[0]
        if len(others) == 1 and _may_be_class(header[others[0]], [row[others[0]] for row in rows])
        else None
    )


def has_other_target(glance: Glance, header: Sequence[str], label: str) -> bool:
    """Tell whether something else than a column is to be learned: run lengths, or what an answer has.

    A template for answers (sample_submission.csv) asks for another column of a table.
    """
    label = label.strip().lower()
    if {name.strip().lower() for name in header} & _RUN_LENGTHS:
        return True
    known: set[str] = set()
    asked: set[str] = set()
    for uri in glance.ending_in(".csv"):
        head = glance.head(uri, _HEAD_BYTES).decode("utf-8-sig", "replace")
        first = head.partition("\n")[0].lower()
        names = [name.strip(' "\r') for name in first.split(",")]
        if SUBMISSION.search(uri.rpartition("/")[2]):
            asked.update(names[1:])
        else:
            known.update(names)
    return bool(asked & known) and label not in asked


def _may_be_class(name: str, values: Sequence[str]) -> bool:
    """Tell whether values may be classes: no texts, runs of numbers or fractions, and not one an image."""
    if not values or name.strip().lower() in _NO_LABELS:
        return False
    are_keys = len(values) >= _MANY_ROWS and len(set(values)) * 10 > len(values) * 9
    return not are_keys and all(0 < len(one) <= 80 and not _NO_CLASS.fullmatch(one.strip()) for one in values)
