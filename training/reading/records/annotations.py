"""Objects and masks of the records of a split (``infra.format.known_features``), moved as their images are.

Objects come from the indexes: no record is read for them. All batches of a split have room for as many
objects as its fullest image has, so that their shape never changes. Masks are stored beside their images.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs.masks import decode_stored_mask
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError, CorruptDataError
from shardmill.infra.format.features import MISSING
from shardmill.infra.format.known_features import BOX_NUMBERS, BOXES, CROWDS, OBJECT_LABELS, MaskFormat
from shardmill.training.arrays import Ints
from shardmill.training.augment.geometry import move_boxes, move_mask
from shardmill.training.augment.kind import Sizes
from shardmill.training.augment.parameters import AugmentParameters
from shardmill.training.reading.records.columns import Padded
from shardmill.training.reading.records.split_records import EncodedImage
from shardmill.training.reading.records.split_table import load_features

Masks = npt.NDArray[Any]  # [b, H, W], of ``batch_dtype``


def batch_dtype(stored: MaskFormat) -> type[np.uint8] | type[np.int32]:
    """Return the type of masks in batches: PyTorch and TensorFlow do little with uint16."""
    return np.uint8 if stored.dtype == "uint8" else np.int32


def check_without_cache(stored: MaskFormat | None, remedy: str) -> None:
    """Check that there are no masks, where only images are kept.

    Raises:
        ConfigError: there are.
    """
    if stored is not None:
        raise ConfigError("a cache keeps images without their masks", remedy)


def fill_mask(
    stored: EncodedImage, parameters: AugmentParameters, row: int, size: int | None, ignore: int, out: Masks
) -> None:
    """Decode the mask of an image and move it with the image.

    Args:
        stored: the image and its mask.
        parameters: parameters of the augmentation of the batch.
        row: row of the image in the batch.
        size: height and width of images (pixels); None: whole images, padded to the largest of the batch.
        ignore: number of pixels that belong to no class, for the padding.
        out: [H, W], written.

    Raises:
        CorruptDataError: the record has no mask, or one that cannot be decoded or is of another size.
    """
    try:
        mask = decode_stored_mask(stored.mask or b"")
    except ImageRejected as rejected:
        raise CorruptDataError(f"its mask is {rejected.message}") from rejected
    if mask.shape != stored.shape[:2]:
        raise CorruptDataError(f"its mask has {mask.shape} pixels, and the image {stored.shape[:2]}")
    if size is not None:
        out[...] = move_mask(mask, parameters, row, size)
        return
    height, width = mask.shape
    out[...] = ignore
    out[:height, :width] = mask


NO_OBJECT = -1  # the class where there is no object
FOLLOWING = frozenset({BOXES, OBJECT_LABELS, CROWDS})  # features that follow their image


class Objects(NamedTuple):
    """The objects of a batch: numpy arrays or tensors. Those of an image come first, then room for M in all.

    Attributes:
        boxes: float32 [b, M, 4]: top, left, bottom, right edge, relative to the image, 0 to 1; else 0.
        classes: int32 [b, M]; -1 where there is no object.
        crowds: bool [b, M]: a box around a group of objects (COCO), or of a difficult object (VOC).
    """

    boxes: Any
    classes: Any
    crowds: Any


@dataclass(frozen=True, slots=True)
class SplitObjects:
    """The objects of all records of a split.

    Attributes:
        starts: int64 [N + 1], where the objects of each record begin.
        boxes: float32 [sum, 4], relative to the stored images.
        classes: int32 [sum].
        crowds: bool [sum].
    """

    starts: Ints
    boxes: npt.NDArray[np.float32]
    classes: npt.NDArray[np.int32]
    crowds: npt.NDArray[np.bool_]

    @property
    def most(self) -> int:
        """The largest number of objects in an image, M; at least 1."""
        return max(int(np.diff(self.starts).max(initial=0)), 1)

    def rows(self, ordinals: Ints) -> Objects:
        """Return the objects of records, relative to their stored images."""
        counts = self.starts[ordinals + 1] - self.starts[ordinals]
        rows = np.repeat(np.arange(len(ordinals)), counts)
        places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        taken = np.repeat(self.starts[ordinals], counts) + places
        found = _empty(len(ordinals), self.most)
        found.boxes[rows, places] = self.boxes[taken]
        found.classes[rows, places] = self.classes[taken]
        found.crowds[rows, places] = self.crowds[taken]
        return found

    def moved(self, ordinals: Ints, parameters: AugmentParameters, heights: Sizes, widths: Sizes) -> Objects:
        """Return the objects of records that are to be seen in their images as augmented.

        Args:
            ordinals: int64 [b], the records.
            parameters: parameters of the augmentation of these images.
            heights: heights of the stored images, [b] (pixels).
            widths: widths of the stored images, [b] (pixels).
        """
        stored = self.rows(ordinals)
        moved = move_boxes(stored.boxes, parameters, heights, widths)
        kept = moved.kept & (stored.classes != NO_OBJECT)
        rows, places = np.nonzero(kept)
        first = (np.cumsum(kept, axis=1) - 1)[rows, places]
        found = _empty(len(ordinals), self.most)
        for new, old in zip(found, (moved.boxes, stored.classes, stored.crowds), strict=True):
            new[rows, first] = old[rows, places]
        return found


def load_objects(version: DatasetVersion, split: str) -> SplitObjects:
    """Load the objects of the records of a split, in the order of its table.

    Raises:
        UsageError: the version has no objects.
        CorruptDataError: a shard or an index is missing, truncated, or differs from the manifest.
    """
    columns = load_features(version, split, [BOXES, OBJECT_LABELS, CROWDS]).columns or {}
    if not columns:
        none = np.zeros(0, np.int64)
        return SplitObjects(
            np.zeros(1, np.int64), np.zeros((0, 4), np.float32), none.astype(np.int32), none > 0
        )
    labels = columns[OBJECT_LABELS]
    counts = labels.value_lengths().fill_null(0).to_numpy()
    return SplitObjects(
        np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]),
        columns[BOXES].flatten().to_numpy().astype(np.float32).reshape(-1, BOX_NUMBERS),
        labels.flatten().to_numpy().astype(np.int32),
        columns[CROWDS].flatten().to_numpy() > 0,
    )


def as_features(objects: Objects, names: Iterable[str]) -> dict[str, Padded]:
    """Return objects as features of the names among ``FOLLOWING``, as ``FeatureColumns.rows`` has them."""
    is_object = np.asarray(objects.classes) != NO_OBJECT
    counts = is_object.sum(axis=1).astype(np.int64)
    longest = int(counts.max(initial=0))
    boxes = np.where(is_object[..., np.newaxis], objects.boxes, np.float32(MISSING["float32"]))
    found = {
        BOXES: Padded(boxes[:, :longest].reshape(len(boxes), -1), counts * BOX_NUMBERS),
        OBJECT_LABELS: _padded(objects.classes, is_object, counts, longest),
        CROWDS: _padded(objects.crowds, is_object, counts, longest),
    }
    return {name: found[name] for name in names if name in FOLLOWING}


def _padded(values: Any, is_object: Any, counts: Ints, longest: int) -> Padded:
    padded = np.where(is_object, values.astype(np.int64), np.int64(MISSING["int64"]))
    return Padded(padded[:, :longest], counts)


def _empty(rows: int, most: int) -> Objects:
    return Objects(
        np.zeros((rows, most, BOX_NUMBERS), np.float32),
        np.full((rows, most), NO_OBJECT, np.int32),
        np.zeros((rows, most), np.bool_),
    )
