"""Masks of images: paired by folders or by a common ending of their names, and attached to the listing.

A file of the source that is a mask has a row that says so; an image without a usable mask is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import MasksConfig
from shardmill.beam_jobs.reasons import (
    FILTER_REASONS,
    MASK_FILE,
    MASK_WITHOUT_IMAGE,
    MISSING_MASK,
    NO_MASK,
    NOT_IN_TABLE,
    SEVERAL_MASKS,
    UNMASKED,
)
from shardmill.beam_jobs.schemas import (
    LISTING_SCHEMA,
    MASK_COLUMNS,
    MASK_MEMBER_COLUMNS,
    MEMBER_COLUMNS,
    Status,
)
from shardmill.beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from shardmill.beam_jobs.sources.recognition.glance import IMAGE_ENDINGS
from shardmill.infra.storage.locations import composed

_FILE_COLUMNS = ("uri", "size_bytes", "mtime_ns")  # the first of MASK_COLUMNS, in their order


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
        self._images = Place(_parts(settings.images), settings.image_suffix)
        self._masks = Place(_parts(settings.masks), settings.mask_suffix)
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


def is_mask_name(path: str) -> bool:
    """Tell whether a file is named as the mask of the image beside it: 0001.mask.png."""
    return _ENDING.sub("", path).lower().endswith(_SAMPLE_SUFFIXES)


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
    """The location of files: the parts of a folder's path, none for any, and the ending of their names."""

    parts: list[str]
    suffix: str

    def key_of(self, uri: str) -> Key | None:
        """Return the part of the path that an image and its mask share; None for other files."""
        if not self.parts and not uri.lower().endswith(IMAGE_ENDINGS):  # other files lie beside them
            return None
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


def _parts(folder: str) -> list[str]:
    """Return the parts of the path of a folder; none for the whole source."""
    return [] if folder == "." else folder.split("/")


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


def attach_masks(listing: pa.Table, images: Int64, masks: Int64, settings: MasksConfig) -> pa.Table:
    """Attach its mask to each image; an image without a usable mask is not read.

    Args:
        listing: LISTING_SCHEMA and maybe columns of features, with a row for each mask.
        images: int64 [N], rows of the images that are to be read, rising.
        masks: int64 [N], row of the mask of each image; -1 if there is none.
        settings: settings of masks; decide on images without a mask.

    Returns:
        The listing with MASK_COLUMNS, and MASK_MEMBER_COLUMNS if it has MEMBER_COLUMNS. The rows of masks
        are filtered.
    """
    reason = UNMASKED if settings.unmasked == "leave_out" else NO_MASK
    listing = with_reason(listing, images[masks < 0], reason, "it has no mask")
    images, masks = images[masks >= 0], masks[masks >= 0]
    is_usable = _are_usable(listing, masks) & (masks != images)
    unusable = pa.array(masks[~is_usable])
    faults = pc.coalesce(listing["message"].take(unusable), pa.scalar("it is the image itself"))
    messages = pc.binary_join_element_wise("its mask ", listing["uri"].take(unusable), ": ", faults, "")
    listing = with_reason(listing, images[~is_usable], MISSING_MASK, messages)
    images, masks = images[is_usable], masks[is_usable]
    of_mask, first = np.unique(masks, return_index=True)
    is_no_image = ~np.isin(of_mask, images)
    shown = listing["uri"].take(pa.array(images[first[is_no_image]]))
    words = pc.binary_join_element_wise("the mask of ", shown, "")
    listing = with_reason(listing, of_mask[is_no_image], MASK_FILE, words)
    places = np.full(listing.num_rows, -1, np.int64)
    places[images] = masks
    at = pa.array(places, mask=places < 0)
    columns = [*zip(MASK_COLUMNS, _FILE_COLUMNS, strict=True)]
    if "container" in listing.schema.names:
        columns += zip(MASK_MEMBER_COLUMNS, (field.name for field in MEMBER_COLUMNS), strict=True)
    for field, name in columns:
        listing = listing.append_column(field, listing[name].take(at))
    return listing


def with_reason(
    listing: pa.Table, rows: Int64, reason: str, messages: str | pa.Array | pa.ChunkedArray
) -> pa.Table:
    """Return the listing with some rows marked as filtered or quarantined.

    Args:
        listing: LISTING_SCHEMA and maybe more.
        rows: int64 [N], distinct.
        reason: of shardmill.beam_jobs.reasons.
        messages: one for all rows, or string [N].
    """
    if not len(rows):
        return listing
    if isinstance(messages, str):
        messages = pa.array([messages])
        number = np.zeros(len(rows), np.int64)
    else:
        number = np.arange(len(rows))
    places = np.full(listing.num_rows, -1, np.int64)
    places[rows] = number
    here = pa.array(places >= 0)
    status = Status.FILTERED if reason in FILTER_REASONS else Status.QUARANTINED
    outcomes = {
        "status": pa.scalar(int(status), pa.int8()),
        "reason": pa.scalar(reason),
        "message": messages.take(pa.array(places, mask=places < 0)),
    }
    for name, value in outcomes.items():
        at = listing.schema.get_field_index(name)
        listing = listing.set_column(at, listing.schema.field(at), pc.if_else(here, value, listing[name]))
    return listing


def _are_usable(listing: pa.Table, masks: Int64) -> npt.NDArray[np.bool_]:
    """Return which files can be read, whether or not a table names them as images: bool [N]."""
    rows = pa.array(masks)
    is_read = pc.equal(listing["status"].take(rows), Status.TO_READ)
    unnamed = pc.fill_null(pc.equal(listing["reason"].take(rows), NOT_IN_TABLE), False)
    return np.asarray(pc.or_(is_read, unnamed).to_numpy(), np.bool_)
