"""Masks of classes in place of objects: what is to be drawn for each image, as columns of a listing.

Pixels have the class of the last polygon around their middle. Those of crowds, and of the boxes of objects
without a polygon, belong to no class; those of no object are of the class ``background``, if there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import SourceConfig
from shardmill.beam_jobs.schemas import MASK_COLUMNS, MASK_SHAPES, Status
from shardmill.beam_jobs.sources.annotations.collecting import Annotations
from shardmill.beam_jobs.sources.annotations.shape_columns import CORNERS_OF_BOX, nested_rings, polygons_of
from shardmill.beam_jobs.tables.columns import lengths_of, with_column
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import POINT_NUMBERS, mask_format
from shardmill.infra.readable import counted

BACKGROUND = "background"

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Points = npt.NDArray[np.float64]

_URI = Feature(name=MASK_COLUMNS[0].name, dtype="bytes", is_text=True)
_SHAPES = Feature(name=MASK_SHAPES.name, dtype="bytes")
_NUMBERS = 8  # in front of the lists


@dataclass(frozen=True)
class Drawing:
    """What the mask of an image is drawn from.

    Attributes:
        size: height, width of the annotated image (pixels); 0 if it is not told.
        upright: annotations are of the upright image, if the size does not tell.
        relative: points are relative to the annotated image, not in pixels.
        background: number of pixels of no object.
        ignore: number of pixels of no class.
        numbers: int64 [N], number that each object gives its pixels.
        rings: int64 [N], number of rings of each object.
        ring_points: int64 [R], number of points of each ring.
        points: float64 [P, 2], y and x.
    """

    size: tuple[int, int]
    upright: bool
    relative: bool
    background: int
    ignore: int
    numbers: Int64
    rings: Int64
    ring_points: Int64
    points: Points

    def to_bytes(self) -> bytes:
        """Return the drawing as bytes, which differ if what is drawn may differ."""
        lists = (self.numbers, self.rings, self.ring_points)
        flags = (self.upright, self.relative, self.background, self.ignore)
        head = (*self.size, *flags, len(self.numbers), len(self.ring_points))
        whole = np.concatenate([np.array(head), *lists]).astype("<i4")
        return whole.tobytes() + self.points.astype("<f4").tobytes()

    @classmethod
    def of(cls, data: bytes) -> Drawing:
        """Return what ``to_bytes`` made bytes of."""
        height, width, upright, relative, background, ignore, count, rings = np.frombuffer(
            data, "<i4", _NUMBERS
        ).tolist()
        ends = [*accumulate((_NUMBERS, count, count, rings))]
        whole = np.frombuffer(data, "<i4", ends[-1]).astype(np.int64)
        numbers, of_objects, of_rings = (whole[start:end] for start, end in pairwise(ends))
        points = np.frombuffer(data, "<f4", offset=4 * ends[-1]).astype(np.float64)
        return cls(
            (height, width),
            bool(upright),
            bool(relative),
            background,
            ignore,
            numbers,
            of_objects,
            of_rings,
            points.reshape(-1, POINT_NUMBERS),
        )


def _check_classes(found: Sequence[str], source: SourceConfig) -> None:
    """Check the classes of masks that are drawn against those of the objects.

    Raises:
        ConfigError: the settings name no classes, or lack one of the objects.
    """
    classes = source.masks.classes
    named = ", ".join(f"'{name}'" for name in dict.fromkeys([BACKGROUND, *found]))
    if not classes:
        raise ConfigError(
            "masks drawn from polygons need their classes in order",
            f'name them, {BACKGROUND} for pixels of no object: --set source.masks.classes="[{named}]"',
        )
    unknown = [name for name in found if name not in classes]
    if unknown and source.masks.unknown == "quarantine":
        raise ConfigError(
            f"source.masks.classes lacks {', '.join(map(repr, unknown[:10]))} of the objects",
            "name it there or in source.columns.drop_labels; or let its pixels belong to no class: "
            "--set source.masks.unknown=ignore",
        )


def drawn_columns(
    found: Annotations,
    boxes: npt.NDArray[np.float64],
    names: Sequence[str],
    order: Int64,
    lengths: Int64,
    source: SourceConfig,
) -> list[tuple[Feature, pa.Array]]:
    """Return the columns of what is drawn: the annotation of each image, and its Drawing.

    Args:
        found: images and objects.
        boxes: float64 [N, 4], box of each object.
        names: class of each of the M objects that stay.
        order: int64 [M], these objects, image by image.
        lengths: int64 [rows], number of objects of each image that stay.
        source: settings.

    Raises:
        ConfigError: no object has a polygon, or the settings do not name the classes.
    """
    if not found.shapes.ring_points:
        raise ConfigError(
            "source.labels = 'mask', and no object has a polygon that a mask could be drawn from",
            "leave source.labels out",
        )
    classes = {name: number for number, name in enumerate(source.masks.classes)}
    _check_classes(sorted(set(names)), source)
    ignore = mask_format(len(classes)).ignore
    nested, has_none = _or_boxes(polygons_of(found.shapes, len(found.names), order), boxes[order])
    if has_none.any():
        without = counted(int(has_none.sum()), "object")
        found.warnings.append(f"{without} without a polygon: the pixels of the box belong to no class")
    numbers = np.array([classes.get(name, ignore) for name in names], np.int64)
    numbers[has_none | np.array(found.crowds, np.bool_)[order]] = ignore
    upright, relative = source.objects.coordinates == "upright", source.has_relative_boxes
    values = upright, relative, classes.get(BACKGROUND, ignore), ignore
    of_image = np.concatenate([[0], np.cumsum(lengths)]).tolist()
    drawn = [
        Drawing(image.size or (0, 0), *values, numbers[start:end], *_rings(nested.slice(start, end - start)))
        for image, (start, end) in zip(found.images, pairwise(of_image), strict=True)
    ]
    uris = pa.array([image.row_uri for image in found.images], pa.string())
    return [(_URI, uris), (_SHAPES, pa.array([each.to_bytes() for each in drawn], pa.binary()))]


def _rings(nested: pa.ListArray) -> tuple[Int64, Int64, Points]:
    """Return the number of rings of each object, of points of each ring, and the points."""
    of_rings = nested.flatten()
    points = of_rings.flatten().to_numpy().reshape(-1, POINT_NUMBERS)
    return lengths_of(nested), lengths_of(of_rings) // POINT_NUMBERS, points


def _or_boxes(nested: pa.ListArray, boxes: npt.NDArray[np.float64]) -> tuple[pa.ListArray, Mask]:
    """Return the rings of objects, in place of none those of their box; and which had none: bool [N]."""
    count, has_none = len(nested), lengths_of(nested) == 0
    corners = boxes[:, CORNERS_OF_BOX].reshape(-1, POINT_NUMBERS)
    around = nested_rings(corners, np.full(count, len(CORNERS_OF_BOX) // 2), np.ones(count, np.int64))
    return pa.concat_arrays([nested, around]).take(pa.array(np.arange(count) + count * has_none)), has_none


def with_drawn_masks(listing: pa.Table) -> pa.Table:
    """Return a listing with MASK_COLUMNS and MASK_SHAPES in place of the features of ``drawn_columns``."""
    is_read = pa.array(listing["status"].to_numpy() == Status.TO_READ)
    columns = [pc.if_else(is_read, listing[PREFIX + each.name], None) for each in (_URI, _SHAPES)]
    listing = listing.drop_columns([PREFIX + each.name for each in (_URI, _SHAPES)])
    listing = with_column(listing, listing.schema.field("label"), pa.nulls(listing.num_rows, pa.string()))
    zeros = pc.if_else(is_read, pa.scalar(0, pa.int64()), None)
    values = (columns[0], zeros, zeros, columns[1])
    for field, value in zip((*MASK_COLUMNS, MASK_SHAPES), values, strict=True):
        listing = listing.append_column(field, value)
    return listing
