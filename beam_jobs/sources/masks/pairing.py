"""Pair images with their masks: by their folders, or by a common ending of the names of the masks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.config import MasksConfig
from shardmill.beam_jobs.reasons import MASK_WITHOUT_IMAGE, SEVERAL_MASKS
from shardmill.beam_jobs.schemas import LISTING_SCHEMA, Status
from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.beam_jobs.sources.masks.attaching import attach_masks, with_reason
from shardmill.infra.storage.locations import composed

Int64 = npt.NDArray[np.int64]

_ENDING = re.compile(r"\.[^./]*$")
_SAMPLE_SUFFIXES = (".mask", ".seg", ".segmentation")


@dataclass(frozen=True, slots=True)
class Key:
    """The part of a path that an image and its mask share: folders, and the name without its endings.

    Attributes:
        above: folders above the folder of all images, or of all masks.
        below: folders below it.
        stem: name of the file, without suffix and ending.
    """

    above: tuple[str, ...]
    below: tuple[str, ...]
    stem: str

    @property
    def split(self) -> str | None:
        """The split that the next folder above or below names."""
        for name in (*self.above[-1:], *self.below[:1]):
            if (split := SPLIT_OF_FOLDER.get(name.lower())) is not None:
                return split
        return None


class Pairing(Protocol):
    """Images and masks of a source, by the part of the path that they share (``Key``).

    Attributes:
        images, masks: key -> rows of the files.
    """

    images: dict[Key, list[int]]
    masks: dict[Key, list[int]]


class FolderPairs:
    """Images and masks of a source, by the part of the path that they share (``Key``).

    Attributes:
        images, masks: path and name without folder, suffix and ending -> rows of the files.
        others: rows of files that are neither.
    """

    def __init__(self, settings: MasksConfig) -> None:
        self._images = Place(settings.images.split("/"), settings.image_suffix)
        self._masks = Place(settings.masks.split("/"), settings.mask_suffix)
        # The longer end first: where both lie in one folder, images may have no suffix at all.
        self._masks_first = len(settings.mask_suffix) >= len(settings.image_suffix)
        self.images: dict[Key, list[int]] = {}
        self.masks: dict[Key, list[int]] = {}
        self.others: list[int] = []

    def add(self, row: int, uri: str) -> None:
        """Add a file of the source."""
        places = [(self._masks, self.masks), (self._images, self.images)]
        for place, found in places if self._masks_first else reversed(places):
            if (key := place.key_of(uri)) is not None:
                found.setdefault(key, []).append(row)
                return
        self.others.append(row)


class SamplePairs:
    """Images and masks that lie side by side, as in WebDataset: 0001.jpg and 0001.mask.png.

    Attributes:
        images, masks: folder and name without suffix and ending -> rows of the files.
        others: rows of files that are neither.
    """

    def __init__(self, settings: MasksConfig) -> None:
        self._suffixes = (settings.mask_suffix,) if settings.mask_suffix else _SAMPLE_SUFFIXES
        self._image_suffix = settings.image_suffix
        self.images: dict[Key, list[int]] = {}
        self.masks: dict[Key, list[int]] = {}
        self.others: list[int] = []

    def add(self, row: int, path: str) -> None:
        """Add a file of the source that may be an image."""
        *folders, name = composed(path).split("/")
        stem = _ENDING.sub("", name)
        ends = [(self.masks, suffix) for suffix in self._suffixes]
        for found, suffix in [*ends, (self.images, self._image_suffix)]:
            if stem.lower().endswith(suffix.lower()) and len(stem) > len(suffix):
                key = Key(tuple(folders), (), stem[: len(stem) - len(suffix)])
                found.setdefault(key, []).append(row)
                return
        self.others.append(row)


@dataclass(frozen=True, slots=True)
class Place:
    """The location of files: the parts of a folder's path, and the ending of their names."""

    parts: list[str]
    suffix: str

    def key_of(self, uri: str) -> Key | None:
        """Return the part of the path that an image and its mask share; None for other files."""
        *folders, name = composed(uri).split("/")
        stem = _ENDING.sub("", name)
        if not stem.endswith(self.suffix) or stem == self.suffix:
            return None
        length = len(self.parts)
        for at in range(len(folders) - length + 1):
            if folders[at : at + length] == self.parts:
                below = tuple(folders[at + length :])
                return Key(tuple(folders[:at]), below, stem[: len(stem) - len(self.suffix)])
        return None


def with_splits(files: pa.Table, found: Pairing) -> pa.Table:
    """Set the split of images whose folders name one."""
    splits: list[str | None] = [None] * files.num_rows
    for key, rows in found.images.items():
        for row in rows:
            splits[row] = key.split
    at = LISTING_SCHEMA.get_field_index("split")
    return files.set_column(at, LISTING_SCHEMA.field(at), pa.array(splits, pa.string()))


def pair(files: pa.Table, found: Pairing, settings: MasksConfig) -> tuple[pa.Table, int]:
    """Attach the masks; returns the listing and the number of pairs."""
    masks = np.full(files.num_rows, -1, np.int64)
    unclear: list[int] = []
    for key, of_key in found.masks.items():
        rows = found.images.get(key, [])
        if len(rows) == len(of_key) == 1:
            masks[rows] = of_key
        else:
            unclear += rows
    orphans = [row for key, rows in found.masks.items() if key not in found.images for row in rows]
    surplus = [row for key, rows in found.masks.items() if key in found.images for row in rows]
    several = "several images, or several masks, have this name in their folders"
    files = with_reason(files, _rows(unclear), SEVERAL_MASKS, several)
    files = with_reason(files, _rows(orphans), MASK_WITHOUT_IMAGE, "there is no image of this name")
    images = _rows(row for rows in found.images.values() for row in rows)
    images = images[~np.isin(images, unclear)]
    listing = attach_masks(files, images, masks[images], settings)
    unused = np.array(surplus, np.int64)
    is_left = listing["status"].take(pa.array(unused)).to_numpy() == Status.TO_READ
    listing = with_reason(listing, np.sort(unused[is_left]), SEVERAL_MASKS, several)
    return listing, int(np.count_nonzero(masks >= 0))


def _rows(rows: Iterable[int]) -> Int64:
    return np.array(sorted(rows), np.int64)
