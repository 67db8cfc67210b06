"""Objects of images whose records hold lists of boxes and of numbers of classes.

Boxes are four numbers each: ymin, xmin, ymax, xmax, relative to the image. The lists of a record are read as
further features first, and become objects once all records are listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.reasons import BROKEN_ROW
from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.sources.annotations.shape_columns import shape_features
from shardmill.beam_jobs.sources.annotations.shapes import Shape, Shapes, rings_of_file
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.tables.columns import lengths_of, lists_of, mask_of, one_chunk, with_column
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.codecs.formats import ImageRejected
from shardmill.infra.codecs.geometry import clip_boxes, have_area
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import (
    ANNOTATED_SIZE,
    BOX_NUMBERS,
    BOXES,
    CROWDS,
    LABELS,
    LEFT_OUT,
    LISTED_OBJECT_FEATURES,
)
from shardmill.infra.format.known_features import OBJECT_LABELS as NAMES
from shardmill.infra.readable import counted

Int64 = npt.NDArray[np.int64]

_MASKS_AT_A_TIME = 1024  # whose outlines are in memory
_NO_AREA, _NO_CLASS = "without an area within the image", "of no known class"


def with_objects(
    listing: Listing, columns: Sequence[str | None], classes: Sequence[str], masks: str | None = None
) -> Listing:
    """Turn the lists of each record into objects.

    Args:
        listing: with the features that hold them.
        columns: names of the features with boxes, class numbers, and crowds or None. A record without crowds
            marks none of its objects.
        classes: names of the classes; empty: they are called by their numbers.
        masks: name of the feature with an encoded mask of the whole image for each object, or none for all.

    Returns:
        The listing with LISTED_OBJECT_FEATURES and labels in their place. Boxes are relative to their images.
    """
    boxes, labels, crowds = (
        None if name is None else _Lists.of(listing.table[PREFIX + name]) for name in columns
    )
    assert boxes is not None, "objects have boxes"
    assert labels is not None, "objects have classes"
    encoded = None if masks is None else _Lists.of(listing.table[PREFIX + masks])
    table = listing.table.drop_columns([PREFIX + name for name in (*columns, masks) if name is not None])
    fits = boxes.lengths == BOX_NUMBERS * labels.lengths
    if crowds is not None:
        fits &= (crowds.lengths == labels.lengths) | (crowds.lengths == 0)
    if encoded is not None:
        fits &= (encoded.lengths == labels.lengths) | (encoded.lengths == 0)
    table = _without_unequal(table, ~fits)
    used = fits & (table["status"].to_numpy() == Status.TO_READ)
    clipped = clip_boxes(boxes.of_rows(used).astype(np.float64).reshape(-1, BOX_NUMBERS), 1, 1)
    numbers, names = _named(labels.of_rows(used).astype(np.int64), classes)
    marked = np.zeros(len(numbers), np.int64)
    if crowds is not None:
        marked[np.repeat(crowds.lengths[used] > 0, labels.lengths[used])] = crowds.of_rows(used)
    rows = np.repeat(np.flatnonzero(used), labels.lengths[used])
    is_known = (numbers >= 0) & (numbers < len(names))
    kept = is_known & have_area(clipped)
    lost = np.bincount(rows[~kept], minlength=table.num_rows)
    objects = _Objects(rows[kept], clipped[kept], numbers[kept], marked[kept], lost)
    counts = {_NO_CLASS: int((~is_known).sum()), _NO_AREA: int((is_known & ~kept).sum())}
    warnings = [f"{counted(count, 'object')} {why} left out" for why, count in counts.items() if count]
    described = _with_columns(table, objects, names)
    if encoded is not None:
        has_mask = np.repeat(encoded.lengths[used] > 0, labels.lengths[used])
        shapes = _shapes_of(encoded.of_rows(used)[kept[has_mask]], np.flatnonzero(has_mask[kept]))
        described = _with_polygons(described, objects, names, shapes)
        if num_lost := shapes.lost.total():
            warnings.append(f"{counted(num_lost, 'mask')} that cannot be read or are empty left out")
    return replace(listing, table=described, warnings=[*listing.warnings, *warnings])


def _named(numbers: Int64, classes: Sequence[str]) -> tuple[Int64, Sequence[str]]:
    """Return class numbers and the names of classes; without names these are the numbers that occur."""
    if classes:
        return numbers, classes
    known = np.unique(numbers[numbers >= 0])
    return np.where(numbers >= 0, np.searchsorted(known, numbers), -1), list(map(str, known.tolist()))


def _with_polygons(table: pa.Table, objects: _Objects, classes: Sequence[str], shapes: Shapes) -> pa.Table:
    """Add the polygons of the objects."""
    lengths = np.bincount(objects.rows, minlength=table.num_rows)
    names = [classes[number] for number in objects.numbers.tolist()]
    for feature, column in shape_features(shapes, objects.boxes, names, np.arange(len(names)), lengths):
        table = table.append_column(feature.arrow_field(PREFIX), column)
    return table


def _shapes_of(masks: npt.NDArray[Any], objects: Int64) -> Shapes:
    """Return the outlines of masks, relative to their images.

    Args:
        masks: bytes [N], encoded, not 0 where the object is.
        objects: int64 [N], number of the object of each, rising.
    """
    shapes = Shapes()
    with ThreadPoolExecutor() as threads:
        for start in range(0, len(masks), _MASKS_AT_A_TIME):
            some = slice(start, start + _MASKS_AT_A_TIME)
            for number, rings in zip(objects[some].tolist(), threads.map(_rings, masks[some]), strict=True):
                if rings:
                    shapes.add(number, Shape(rings, has_holes=True))
                else:
                    shapes.lost["masks"] += 1
    return shapes


def _rings(encoded: bytes) -> list[npt.NDArray[np.float64]]:
    """Return the outline of an encoded mask, relative to it; nothing if it cannot be read."""
    try:
        rings, size = rings_of_file(encoded)
    except ImageRejected:
        return []
    return [ring / size for ring in rings]


@dataclass(frozen=True)
class _Lists:
    """A column of lists of numbers; null counts as an empty list."""

    column: pa.Array
    lengths: Int64

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> _Lists:
        values = one_chunk(column)
        if not pa.types.is_list(values.type):  # no record has more than one
            values = lists_of(values.drop_null(), mask_of(pc.is_valid(values)))
        return cls(values, lengths_of(values))

    def of_rows(self, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        return np.asarray(self.column.filter(pa.array(chosen)).flatten().to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class _Objects:
    """The objects that are kept, one after the other, by the rows of their images.

    Attributes:
        rows: int64 [N], of the images, rising.
        boxes: float64 [N, 4].
        numbers, crowds: int64 [N], the class, and 1 for a group or a difficult object.
        lost: int64 [rows of the listing], objects that are left out.
    """

    rows: Int64
    boxes: npt.NDArray[np.float64]
    numbers: Int64
    crowds: Int64
    lost: Int64


def _with_columns(table: pa.Table, objects: _Objects, classes: Sequence[str]) -> pa.Table:
    """Add the objects of each image, and the classes that it shows as labels."""
    count = table.num_rows
    lengths = np.bincount(objects.rows, minlength=count)
    known = pa.array(classes, pa.string())
    values = {
        BOXES: lists_of(pa.array(objects.boxes.astype(np.float32).reshape(-1)), lengths * BOX_NUMBERS),
        NAMES: lists_of(known.take(pa.array(objects.numbers)), lengths),
        CROWDS: lists_of(pa.array(objects.crowds), lengths),
        LEFT_OUT: pa.array(objects.lost.astype(np.int64)),
        ANNOTATED_SIZE: pa.nulls(count, pa.list_(pa.int64())),
    }
    by_name = np.array(sorted(range(len(classes)), key=lambda number: classes[number]), np.int64)
    ranks = np.argsort(by_name)
    shown = np.unique(objects.rows * len(classes) + ranks[objects.numbers])
    labels = lists_of(
        known.take(pa.array(by_name[shown % len(classes)])),
        np.bincount(shown // len(classes), minlength=count),
    )
    table = with_column(table, table.schema.field("label"), pc.binary_join(labels, ", "))
    described = Feature(name=LABELS, dtype="bytes", shape="variable", is_text=True)
    table = table.append_column(described.arrow_field(PREFIX), labels)
    for feature in LISTED_OBJECT_FEATURES:
        table = table.append_column(feature.arrow_field(PREFIX), values[feature.name])
    return table


def _without_unequal(table: pa.Table, unequal: npt.NDArray[np.bool_]) -> pa.Table:
    """Quarantine the records whose lists differ in length."""
    wrong = pc.and_(pa.array(unequal), pc.equal(table["status"], int(Status.TO_READ)))
    said: dict[str, Any] = {
        "status": pa.scalar(int(Status.QUARANTINED), pa.int8()),
        "reason": pa.scalar(BROKEN_ROW),
        "message": pa.scalar("its lists of boxes and classes differ in length"),
    }
    for name, value in said.items():
        table = with_column(table, table.schema.field(name), pc.if_else(wrong, value, table[name]))
    return table
