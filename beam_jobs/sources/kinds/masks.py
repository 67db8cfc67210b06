"""Images in one folder and their masks in another, with the same paths and names.

::

    images/…/a.jpg          masks/…/a.png              the splits are made here
    train/images/a.jpg      train/masks/a.png          the splits are given, by the folder above
    images/train/a.jpg      masks/train/a.png          or by the folder below

``source.masks`` names other folders (JPEGImages and SegmentationClass of Pascal VOC), and what the names of
images and masks end in. A file that is neither is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_jobs.config import MasksConfig, PrepareConfig, SourceConfig
from beam_jobs.schemas import LISTING_SCHEMA, MASK_WITHOUT_IMAGE, OTHER_FILE, SEVERAL_MASKS, Status
from beam_jobs.sources.files.folder import SourceFolder
from beam_jobs.sources.files.ignore import IgnorePatterns
from beam_jobs.sources.files.walking import SPLIT_OF_FOLDER
from beam_jobs.sources.kinds.table import listed_files
from beam_jobs.sources.listing import Listing
from beam_jobs.sources.masks.attaching import attach_masks, with_reason
from beam_jobs.sources.recognition.glance import Glance, Recognised
from infra.errors import NotFoundError
from infra.progress import log
from infra.readable import counted

Int64 = npt.NDArray[np.int64]

_ENDING = re.compile(r"\.[^./]*$")
_USUAL_FOLDERS = (("images", "masks"), ("JPEGImages", "SegmentationClass"))


def list_inputs(folder: SourceFolder, config: PrepareConfig) -> Listing:
    """List every file of a folder, with the mask of each image.

    Raises:
        NotFoundError: there is no such folder, or no image with a mask in it.
    """
    settings = config.source.masks
    walk = folder.walk(IgnorePatterns(config.filter.ignore), splits_on_top=False)
    files = listed_files(walk, [])
    found = _Pairs(settings)
    is_read = (files["status"].to_numpy() == Status.TO_READ).tolist()
    for row, (uri, is_usable) in enumerate(zip(files["uri"].to_pylist(), is_read, strict=True)):
        if is_usable:
            found.add(row, uri)
    if config.source.layout != "classes":
        files = _with_splits(files, found)
    words = f"neither an image in a folder {settings.images} nor a mask in a folder {settings.masks}"
    files = with_reason(files, np.array(found.others, np.int64), OTHER_FILE, words)
    listing, num_pairs = _paired(files, found, settings)
    if not num_pairs:
        raise NotFoundError(
            f"{folder.uri} has {counted(len(found.images), 'image')} in folders {settings.images}, "
            f"{counted(len(found.masks), 'mask')} in folders {settings.masks}, and no pair of the same name",
            "name the folders and the ends of names: source.masks.images, masks, image_suffix, mask_suffix",
        )
    log(f"{counted(num_pairs, 'image')} with a mask")
    return Listing(listing, walk.warnings())


def recognise(glance: Glance, settings: SourceConfig) -> Recognised | None:
    """Recognise folders of images and of masks with the same names.

    If the settings name the classes of masks, nothing else that describes the images counts.
    """
    if settings.labels not in (None, "mask"):
        return None
    named = (settings.masks.images, settings.masks.masks)
    for images, masks in dict.fromkeys((named, *_USUAL_FOLDERS)):
        seen = _Pairs(settings.masks.model_copy(update={"images": images, "masks": masks}))
        uris = glance.images
        for row, uri in enumerate(uris):
            seen.add(row, uri)
        if pairs := seen.images.keys() & seen.masks.keys():
            found = {"masks": {"images": images, "masks": masks}}
            rows = [row for key in pairs for row in (*seen.images[key], *seen.masks[key])]
            folders = {uris[row].rpartition("/")[0] for row in rows}
            why, is_asked = f"{images} and {masks} hold files of the same names", bool(settings.masks.classes)
            return Recognised(why, found, is_certain=is_asked, is_complete=is_asked, image_folders=folders)
    return None


class _Pairs:
    """Images and masks of a source, by what both have in common.

    Attributes:
        images, masks: path and name without folder, suffix and ending -> rows of the files.
        others: rows of files that are neither.
    """

    def __init__(self, settings: MasksConfig) -> None:
        self._images = _Place(settings.images.split("/"), settings.image_suffix)
        self._masks = _Place(settings.masks.split("/"), settings.mask_suffix)
        # The longer end first: where both lie in one folder, images may have no suffix at all.
        self._masks_first = len(settings.mask_suffix) >= len(settings.image_suffix)
        self.images: dict[_Key, list[int]] = {}
        self.masks: dict[_Key, list[int]] = {}
        self.others: list[int] = []

    def add(self, row: int, uri: str) -> None:
        """Add a file of the source."""
        places = [(self._masks, self.masks), (self._images, self.images)]
        for place, found in places if self._masks_first else reversed(places):
            if (key := place.key_of(uri)) is not None:
                found.setdefault(key, []).append(row)
                return
        self.others.append(row)


@dataclass(frozen=True, slots=True)
class _Key:
    """The folders above that of all images, those below, and the name without suffix and ending."""

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


@dataclass(frozen=True, slots=True)
class _Place:
    """Where files lie: the parts of a folder's path, and what their names end in."""

    parts: list[str]
    suffix: str

    def key_of(self, uri: str) -> _Key | None:
        """Return what a file here has in common with its counterpart; None if it is not here."""
        *folders, name = uri.split("/")
        stem = _ENDING.sub("", name)
        if not stem.endswith(self.suffix) or stem == self.suffix:
            return None
        length = len(self.parts)
        for at in range(len(folders) - length + 1):
            if folders[at : at + length] == self.parts:
                below = tuple(folders[at + length :])
                return _Key(tuple(folders[:at]), below, stem[: len(stem) - len(self.suffix)])
        return None


def _with_splits(files: pa.Table, found: _Pairs) -> pa.Table:
    """Set the split of images whose folders name one."""
    splits: list[str | None] = [None] * files.num_rows
    for key, rows in found.images.items():
        for row in rows:
            splits[row] = key.split
    at = LISTING_SCHEMA.get_field_index("split")
    return files.set_column(at, LISTING_SCHEMA.field(at), pa.array(splits, pa.string()))


def _paired(files: pa.Table, found: _Pairs, settings: MasksConfig) -> tuple[pa.Table, int]:
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
