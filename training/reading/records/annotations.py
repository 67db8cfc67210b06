"""Objects and masks of the records of a split (``infra.format.known_features``), moved as their images are.

Objects come from the indexes: no record is read for them. All batches of a split have room for as many
objects as its fullest image has, so that their shape never changes. Masks are stored beside their images.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, or_
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs.masks import decode_stored_mask
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError, CorruptDataError, DataError
from shardmill.infra.format.known_features import (
    BOX_NUMBERS,
    BOXES,
    CORNER_NUMBERS,
    CORNERS,
    CROWDS,
    KEYPOINTS,
    OBJECT_LABELS,
    POLYGONS,
    SHAPES,
    VISIBILITY,
    MaskFormat,
    key_points,
)
from shardmill.training.arrays import Ints
from shardmill.training.augment.geometry import move_boxes, move_mask
from shardmill.training.augment.parameters import AugmentParameters, draw_parameters
from shardmill.training.augment.settings import AugmentSettings
from shardmill.training.reading.records.columns import Padded, places_in, taken_from
from shardmill.training.reading.records.shapes import (
    Corners,
    KeyPointsOfSplit,
    Polygons,
    Views,
    lists_of,
    read_with,
)
from shardmill.training.reading.records.split_records import EncodedImage
from shardmill.training.reading.records.split_table import load_features, load_table

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


_PROBES = 64  # images that tell whether any is mirrored
NO_OBJECT = -1  # the class where there is no object
FOLLOWING = frozenset({BOXES, OBJECT_LABELS, CROWDS}) | SHAPES  # features that follow their image


def covers_all(boxes: Any) -> Any:
    """Return which boxes cover the whole image (a crowd there ignores its class alone): [..., k] -> [...].

    A box is four edges, or y and x of four corners.
    """
    if boxes.shape[-1] == CORNER_NUMBERS:
        y, x = ([boxes[..., at] for at in range(axis, CORNER_NUMBERS, 2)] for axis in (0, 1))
        beyond = [[value <= 0.0 for value in y], [value >= 1.0 for value in y]]
        beside = [[value <= 0.0 for value in x], [value >= 1.0 for value in x]]
        ends = ((one, other) for one in beyond for other in beside)
        return reduce(and_, (reduce(or_, map(and_, one, other)) for one, other in ends))
    return (boxes[..., 0] <= 0.0) & (boxes[..., 1] <= 0.0) & (boxes[..., 2] >= 1.0) & (boxes[..., 3] >= 1.0)


class Objects(NamedTuple):
    """The objects of a batch: numpy arrays or tensors. Those of an image come first, then room for M in all.

    A class of which it is unknown whether the image shows it has a crowd over the whole image.

    Attributes:
        boxes: float32 [b, M, 4]: top, left, bottom, right edge, relative to the image, 0 to 1; else 0.
            Oriented ones are [b, M, 8]: y, x of four corners in turn, which may lie outside of the image.
        classes: int32 [b, M]; -1 where there is no object.
        crowds: bool [b, M]: a box around a group of objects (COCO), or of a difficult object (VOC).
    """

    boxes: Any
    classes: Any
    crowds: Any


@dataclass(frozen=True, slots=True)
class Shown:
    """The objects to be seen in the images of a batch.

    Attributes:
        ordinals: int64 [b], the records.
        rows: int64 [n], the image of each; they rise.
        numbers: int64 [n], its number among the objects of the split.
        boxes: float32 [n, 4], relative to the images.
        views: how the images are seen.
    """

    ordinals: Ints
    rows: Ints
    numbers: Ints
    boxes: npt.NDArray[np.float32]
    views: Views


@dataclass(frozen=True, slots=True)
class SplitObjects:
    """The objects of all records of a split.

    Attributes:
        starts: int64 [N + 1], where the objects of each record begin.
        boxes: float32 [sum, 4], relative to the stored images.
        classes: int32 [sum].
        crowds: bool [sum].
        shapes: the other shapes of the objects that were asked for.
        unknown: of each of several data sets the classes that are not known of its images: int32 [k].
        stops: int64 [K], behind the last record of each.
        whole: the box of a whole image in ``padded``.
    """

    whole: ClassVar[tuple[float, ...]] = (0, 0, 1, 1)
    starts: Ints
    boxes: npt.NDArray[np.float32]
    classes: npt.NDArray[np.int32]
    crowds: npt.NDArray[np.bool_]
    shapes: tuple[Polygons | KeyPointsOfSplit | Corners, ...] = ()
    unknown: tuple[npt.NDArray[np.int32], ...] = ()
    stops: Ints | None = None

    @property
    def most(self) -> int:
        """The largest number of objects in an image, M, with a crowd for each unknown class; at least 1."""
        crowds = max((len(classes) for classes in self.unknown), default=0)
        return max(int(np.diff(self.starts).max(initial=0)) + crowds, 1)

    def shown(self, ordinals: Ints, views: Views) -> Shown:
        """Return the objects of records that are to be seen in their images as augmented.

        Args:
            ordinals: int64 [b], the records.
            views: how their images are seen.
        """
        numbers, lengths = taken_from(self.starts, ordinals)
        rows, places = np.repeat(np.arange(len(ordinals)), lengths), places_in(lengths)
        stored = np.zeros((len(ordinals), int(lengths.max(initial=0)), BOX_NUMBERS), np.float32)
        stored[rows, places] = self.boxes[numbers]
        moved = move_boxes(stored, views.parameters, views.heights, views.widths)
        kept = moved.kept[rows, places]
        return Shown(ordinals, rows[kept], numbers[kept], moved.boxes[rows, places][kept], views)

    def padded(self, shown: Shown) -> Any:
        """Return ``Objects`` with room for as many in each image as the fullest of the split has."""
        count = len(shown.views.heights)
        lengths = np.bincount(shown.rows, minlength=count)
        at = shown.rows, places_in(lengths)
        found = Objects(
            np.zeros((count, self.most, len(self.whole)), np.float32),
            np.full((count, self.most), NO_OBJECT, np.int32),
            np.zeros((count, self.most), np.bool_),
        )
        values = self.boxes_of(shown), self.classes[shown.numbers], self.crowds[shown.numbers]
        for array, own in zip(found, values, strict=True):
            array[at] = own
        if self.stops is not None:
            of_set = np.searchsorted(self.stops, shown.ordinals, side="right")
            for number, classes in enumerate(self.unknown):
                rows = np.flatnonzero(of_set == number)[:, np.newaxis]
                places = lengths[rows] + np.arange(len(classes))
                found.boxes[rows, places] = self.whole
                found.classes[rows, places] = classes
                found.crowds[rows, places] = True
        return found

    def boxes_of(self, shown: Shown) -> npt.NDArray[np.float32]:
        """Return the boxes that are learned: float32 [n, 4 or 8]."""
        return shown.boxes

    def features(self, shown: Shown, names: Collection[str]) -> dict[str, Padded]:
        """Return the features of some names among ``FOLLOWING``, as ``FeatureColumns.rows`` has them."""
        if not names:
            return {}
        rows, count = shown.rows, len(shown.views.heights)
        found = {
            BOXES: lists_of(shown.boxes, rows, count),
            OBJECT_LABELS: lists_of(self.classes[shown.numbers], rows, count),
            CROWDS: lists_of(self.crowds[shown.numbers], rows, count),
        }
        for shape in self.shapes:
            found |= shape.moved(shown.numbers, rows, shown.views)
        return {name: found[name] for name in names}

    def check_follow(self, augment: AugmentSettings, image_size: int) -> None:
        """Check that objects can follow the augmentation of their images, of some size (pixels).

        Raises:
            ConfigError: they cannot, or points cannot, or nothing tells which key points a mirror swaps.
        """
        augment.check_objects_follow(points=bool(self.shapes))
        for shape in self.shapes:
            if isinstance(shape, KeyPointsOfSplit):
                sides = np.full(_PROBES, image_size)
                drawn = draw_parameters(augment, 0, 0, np.arange(_PROBES), sides, sides, image_size)
                shape.check_follow(drawn)


@dataclass(frozen=True, slots=True)
class OrientedObjects(SplitObjects):
    """The objects of a split, of which oriented boxes are learned."""

    whole: ClassVar[tuple[float, ...]] = (-1, -1, 2, -1, 2, 2, -1, 2)  # boxes may reach beyond the image

    @classmethod
    def load(cls, version: DatasetVersion, split: str) -> OrientedObjects:
        """Load them, where the objects have oriented boxes."""
        found = load_objects(version, split, [CORNERS])
        return cls(found.starts, found.boxes, found.classes, found.crowds, found.shapes)

    def boxes_of(self, shown: Shown) -> npt.NDArray[np.float32]:
        """Return the corners of the oriented boxes: float32 [n, 8]."""
        (shape,) = self.shapes
        assert isinstance(shape, Corners), "corners alone were loaded"
        return shape.seen(shown.numbers, shown.rows, shown.views)


@dataclass(frozen=True, slots=True)
class LoneObjects(SplitObjects):
    """The objects of a split whose images have one each, with K key points."""

    @classmethod
    def load(cls, version: DatasetVersion, split: str) -> LoneObjects:
        """Load them.

        Raises:
            UsageError: the objects have no key points. DataError: an image has none of them, or several, or
                no object of train has an annotated one.
        """
        found = load_objects(version, split, [KEYPOINTS])
        counts = np.diff(found.starts)
        if (counts != 1).any():
            others = f"{np.count_nonzero(counts != 1):,} of {len(counts):,} records of {split}"
            raise DataError(
                f"{others} of {version.ref} have no object or several: key points need one",
                "choose images with one, or read the key points with open_dataset for a model of your own",
            )
        annotated = (one.visibility.any() for one in found.shapes if isinstance(one, KeyPointsOfSplit))
        if split == "train" and not any(annotated):
            raise DataError(
                f"no object of {split} of {version.ref} has an annotated key point to learn",
                "annotate some, or leave data.objects out: the detector learns boxes",
            )
        return cls(found.starts, found.boxes, found.classes, found.crowds, found.shapes)

    @property
    def width(self) -> int:
        """The length of a row of ``padded``."""
        (points,) = self.shapes
        return 3 * int(points.points.shape[1]) + BOX_NUMBERS

    def padded(self, shown: Shown) -> Any:
        """Return y, x and visibility of the key points of each image, and the box: float32 [b, 3 K + 4].

        All are 0 where the object is not to be seen.
        """
        (shape,) = self.shapes
        moved = shape.moved(shown.numbers, shown.rows, shown.views)
        found = np.zeros((len(shown.views.heights), self.width), np.float32)
        places, seen = (moved[name].values[shown.rows] for name in (KEYPOINTS, VISIBILITY))
        points = np.concatenate([places.reshape(*seen.shape, 2), seen[..., np.newaxis]], axis=-1)
        numbers = points.reshape(len(points), self.width - BOX_NUMBERS)
        found[shown.rows] = np.concatenate([numbers, shown.boxes], axis=1)
        return found


def load_objects(version: DatasetVersion, split: str, names: Collection[str] = ()) -> SplitObjects:
    """Load the objects of the records of a split, in the order of its table.

    Args:
        version: the dataset version.
        split: the name of the split.
        names: names of features; the shapes among them are loaded too.

    Raises:
        UsageError: the version has no objects, or not these shapes.
        CorruptDataError: a shard or an index is missing, truncated, or differs from the manifest; or the
            manifest does not name the key points.
    """
    further = read_with(names)
    columns = load_features(version, split, [BOXES, OBJECT_LABELS, CROWDS, *further]).columns or {}
    values = {name: _values(columns, name) for name in (BOXES, OBJECT_LABELS, CROWDS, *further)}
    counts = columns[BOXES].value_lengths().fill_null(0).to_numpy() // BOX_NUMBERS if columns else []
    found: list[Polygons | KeyPointsOfSplit | Corners] = []
    if POLYGONS in further:
        found.append(Polygons.of(values))
    if KEYPOINTS in further:
        if (points := key_points(version.manifest.extra_features)) is None:
            raise CorruptDataError(f"{version.ref} has key points that its manifest does not name")
        found.append(KeyPointsOfSplit.of(values, points))
    if CORNERS in further:
        found.append(Corners(values[CORNERS].reshape(-1, CORNER_NUMBERS // 2, 2)))
    return SplitObjects(
        np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]),
        values[BOXES].astype(np.float32).reshape(-1, BOX_NUMBERS),
        values[OBJECT_LABELS].astype(np.int32),
        values[CROWDS] > 0,
        tuple(found),
    )


def with_unknown_classes(objects: SplitObjects, version: DatasetVersion, split: str) -> SplitObjects:
    """Return objects with the classes that each of several data sets lacks, where these are ignored."""
    known = np.array([version.knows_classes(number) for number in range(len(version.data_sets))])
    if known.all():
        return objects
    unknown = tuple(np.flatnonzero(~of_set).astype(np.int32) for of_set in known)
    return replace(objects, unknown=unknown, stops=np.cumsum(load_table(version, split).set_sizes))


def _values(columns: Mapping[str, Any], name: str) -> npt.NDArray[Any]:
    """Return all values of a feature of lists, one record after the other; none if there are no records."""
    return columns[name].flatten().to_numpy() if columns else np.zeros(0, np.int64)
