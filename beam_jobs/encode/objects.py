"""Objects of images, placed in the stored images once the facts of all images are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import ImageConfig, PrepareConfig
from shardmill.beam_jobs.encode.decided import without
from shardmill.beam_jobs.encode.masks import with_mask_features
from shardmill.beam_jobs.encode.placing import Frames, Placing
from shardmill.beam_jobs.reasons import OTHER_SIZE
from shardmill.beam_jobs.schemas import Status, has_masks
from shardmill.beam_jobs.sources.annotations.shape_columns import lists_of_rows, nested_rings, polygon_columns
from shardmill.beam_jobs.tables.columns import lengths_of, lists_of, values_of, with_column
from shardmill.beam_jobs.tables.features import PREFIX, features_of
from shardmill.infra.codecs.geometry import (
    Boxes,
    have_area,
)
from shardmill.infra.format.known_features import (
    ANNOTATED_SIZE,
    BOX_NUMBERS,
    BOXES,
    CORNER_NUMBERS,
    CORNERS,
    CROWDS,
    KEYPOINTS,
    LABELS,
    LEFT_OUT,
    OBJECT_LABELS,
    POINT_NUMBERS,
    POLYGON_FEATURES,
    POLYGONS,
    RING_POINTS,
    RINGS,
    VISIBILITY,
    key_points,
)
from shardmill.infra.progress import log
from shardmill.infra.readable import counted

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PlacedObjects:
    """A listing whose boxes are those of the stored images.

    Attributes:
        listing: LISTING_SCHEMA and columns of features (infra.format.known_features), names in place of
            numbers.
        facts: PLACED_FACTS_SCHEMA; images of another size than the annotated ones are quarantined.
        num_cut_off: objects that the stored images do not show.
    """

    listing: pa.Table
    facts: pa.Table
    num_cut_off: int


def _has_objects(listing: pa.Table) -> bool:
    """Tell whether a listing has objects that are not placed yet."""
    return PREFIX + ANNOTATED_SIZE in listing.schema.names


def _place_objects(
    listing: pa.Table, facts: pa.Table, image: ImageConfig, *, upright: bool, relative: bool = False
) -> PlacedObjects:
    """Turn, cut and scale the boxes and shapes of all images as the images were.

    Args:
        listing: LISTING_SCHEMA and columns of features (LISTED_OBJECT_FEATURES, and shapes).
        facts: PLACED_FACTS_SCHEMA, of the files that are read, in the same order.
        image: how images are stored.
        upright: boxes are of the upright image, if the size of the annotated image does not tell.
        relative: boxes are relative to the annotated image, not in pixels.
    """
    status = facts["status"].to_numpy()
    is_stored = (status == Status.STORED) | (status == Status.STORED_BEFORE)
    read = np.flatnonzero(listing["status"].to_numpy() == Status.TO_READ)
    frames = Frames.of(facts, _annotated_sizes(listing, read), upright=upright)
    fits = is_stored & frames.fit
    counts = lengths_of(listing[PREFIX + BOXES]) // BOX_NUMBERS
    of_row = np.repeat(np.arange(listing.num_rows), counts)
    of_fact = np.full(listing.num_rows, -1, np.int64)
    of_fact[read[fits]] = np.flatnonzero(fits)
    images = of_fact[of_row]
    is_placed = images >= 0
    placing = Placing.of(frames, images[is_placed], image, relative=relative)
    boxes = _numbers(listing, BOXES, BOX_NUMBERS)
    boxes[is_placed] = placing.boxes(boxes[is_placed])
    stored = boxes.astype(np.float32)
    kept = have_area(stored) | ~is_placed
    listing = _with_shapes(
        listing, placing, is_placed, kept, np.bincount(of_row[kept], minlength=len(counts))
    )
    placed = _with_kept(listing, stored, of_row, kept)
    lost = is_stored & ~frames.fit
    messages = (
        f"the annotation is of an image of {width}×{height} pixels, and this has {source[1]}×{source[0]}"
        for (height, width), source in zip(frames.annotated[lost], frames.sizes[lost], strict=True)
    )
    left = without(facts, lost, Status.QUARANTINED, ((OTHER_SIZE, message) for message in messages))
    return PlacedObjects(placed, left, int(np.count_nonzero(~kept)))


def _numbers(listing: pa.Table, name: str, width: int) -> Boxes:
    """Return a feature that has so many numbers an object: float64 [objects, width]."""
    values: Boxes = values_of(listing[PREFIX + name]).to_numpy().astype(np.float64)
    return values.reshape(-1, width)


_OBJECTS_AT_A_TIME = 1 << 16  # whose polygons are placed; a few hundred MB in memory


def _with_shapes(listing: pa.Table, placing: Placing, is_placed: Mask, kept: Mask, counts: Int64) -> pa.Table:
    """Return the listing with the shapes of the objects that are kept, in their stored images.

    Args:
        listing: LISTING_SCHEMA and columns of features, for N objects.
        placing: places the objects whose images are stored.
        is_placed: bool [N], which these are.
        kept: bool [N], which objects are kept.
        counts: int64 [rows], number of kept objects of each row.
    """
    found: dict[str, pa.Array] = {}
    names = {feature.name for feature in features_of(listing)}
    if POLYGONS in names:
        polygons = _placed_polygons(listing, placing, is_placed).filter(pa.array(kept))
        found |= zip((each.name for each in POLYGON_FEATURES), polygon_columns(polygons, counts), strict=True)
    if KEYPOINTS in names:
        points, visibility = _placed_keypoints(listing, placing, is_placed)
        found |= {
            KEYPOINTS: lists_of_rows(points[kept], counts),
            VISIBILITY: lists_of_rows(visibility[kept], counts),
        }
    if CORNERS in names:
        corners = _numbers(listing, CORNERS, CORNER_NUMBERS).reshape(-1, CORNER_NUMBERS // 2, 2)
        corners[is_placed] = placing.points(corners[is_placed])[0]
        found[CORNERS] = lists_of_rows(corners[kept].astype(np.float32), counts)
    for name, column in found.items():
        listing = with_column(listing, listing.schema.field(PREFIX + name), column)
    return listing


def _placed_polygons(listing: pa.Table, placing: Placing, is_placed: Mask) -> pa.ListArray:
    """Return the rings of each object (``nested_rings``) in its stored image."""
    of_rings = lists_of(
        values_of(listing[PREFIX + POLYGONS]),
        values_of(listing[PREFIX + RING_POINTS]).to_numpy() * POINT_NUMBERS,
    )
    annotated = lists_of(of_rings, values_of(listing[PREFIX + RINGS]).to_numpy()).filter(pa.array(is_placed))
    parts = [nested_rings(np.empty((0, 2)), np.empty(0, np.int64), np.zeros(1, np.int64))]
    for start in range(0, len(annotated), _OBJECTS_AT_A_TIME):
        part = annotated.slice(start, _OBJECTS_AT_A_TIME)
        rings, counts = lengths_of(part), lengths_of(part.flatten()) // POINT_NUMBERS
        points = part.flatten().flatten().to_numpy().astype(np.float64).reshape(-1, POINT_NUMBERS)
        parts.append(nested_rings(*placing.part(start, start + len(part)).rings(points, counts, rings)))
    placed = pa.concat_arrays(parts)
    if is_placed.all():
        return placed.slice(1)
    # The first list is empty: that of the objects whose images are not stored.
    return placed.take(pa.array(np.where(is_placed, np.cumsum(is_placed), 0)))


def _placed_keypoints(
    listing: pa.Table, placing: Placing, is_placed: Mask
) -> tuple[npt.NDArray[np.float32], Int64]:
    """Return the key points of each object in its stored image: float32 [N, K, 2] and visibility [N, K]."""
    points = key_points(features_of(listing))
    count = len(points.names) if points is not None else 0
    placed = _numbers(listing, KEYPOINTS, POINT_NUMBERS * count).reshape(-1, count, POINT_NUMBERS)
    visibility = _numbers(listing, VISIBILITY, count).astype(np.int64)
    placed[is_placed], are_in = placing.points(placed[is_placed])
    visibility[is_placed] *= are_in
    placed[visibility == 0] = 0
    return placed.astype(np.float32), visibility


def _annotated_sizes(listing: pa.Table, read: Int64) -> Int64:
    """Return height and width of the annotated images: int64 [read, 2], 0 where they are unknown."""
    lists = listing[PREFIX + ANNOTATED_SIZE].take(pa.array(read)).combine_chunks()
    sizes = np.zeros((len(read), 2), np.int64)
    with_objects = np.flatnonzero(np.asarray(lists.is_valid().to_numpy(zero_copy_only=False)))
    sizes[with_objects] = values_of(lists).to_numpy().reshape(-1, 2)
    return sizes


def _with_kept(listing: pa.Table, boxes: npt.NDArray[np.float32], of_row: Int64, kept: Mask) -> pa.Table:
    """Return the listing with the boxes of the objects that are kept, and what belongs to them."""
    counts = np.bincount(of_row[kept], minlength=listing.num_rows)
    chosen = pa.array(kept)
    names = values_of(listing[PREFIX + OBJECT_LABELS]).filter(chosen)
    found = {
        BOXES: lists_of(pa.array(boxes[kept].reshape(-1)), counts * BOX_NUMBERS),
        OBJECT_LABELS: lists_of(names, counts),
        CROWDS: lists_of(values_of(listing[PREFIX + CROWDS]).filter(chosen), counts),
        LEFT_OUT: _added(listing[PREFIX + LEFT_OUT], np.bincount(of_row[~kept], minlength=listing.num_rows)),
        LABELS: _name_sets(names, of_row[kept], listing.num_rows),
    }
    for name, column in found.items():
        listing = with_column(listing, listing.schema.field(PREFIX + name), column)
    return listing.drop_columns([PREFIX + ANNOTATED_SIZE])


def _name_sets(names: pa.Array, rows: Int64, num_rows: int) -> pa.ListArray:
    """Return the names of each row, sorted and each once."""
    known = sorted(pc.unique(names).to_pylist())
    codes = np.asarray(pc.index_in(names, pa.array(known, pa.string())).to_numpy(), np.int64)
    keys = np.unique(rows * max(1, len(known)) + codes)
    of_row, code = np.divmod(keys, max(1, len(known)))
    values = pa.array(known, pa.string()).take(pa.array(code))
    return lists_of(values, np.bincount(of_row, minlength=num_rows))


def _added(column: pa.ChunkedArray, more: Int64) -> pa.Array:
    return pc.add(pc.fill_null(column, 0), pa.array(more)).combine_chunks()


def complete_listing(listing: pa.Table, facts: pa.Table, config: PrepareConfig) -> tuple[pa.Table, pa.Table]:
    """Place the objects in the stored images, and move features that reading found to the listing.

    Args:
        listing: LISTING_SCHEMA and columns of features.
        facts: PLACED_FACTS_SCHEMA and columns of features, of the files that are read, in the same order.
        config: settings of this run.

    Returns:
        The listing as planning needs it, and the facts without columns of features.
    """
    if _has_objects(listing):
        upright = config.source.has_upright_boxes
        relative = config.source.has_relative_boxes
        placed = _place_objects(listing, facts, config.image, upright=upright, relative=relative)
        listing, facts = placed.listing, placed.facts
        if placed.num_cut_off:
            cut_off = counted(placed.num_cut_off, "object")
            log(f"{cut_off} left out, because the stored images do not show them", level="warning")
    listing, facts = move_to_listing(listing, facts)
    if has_masks(listing):
        listing = with_mask_features(listing, list(config.source.masks.classes))
    return listing, facts


def move_to_listing(listing: pa.Table, facts: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Move the columns of features from the facts of files to the listing, and groups where it has none.

    Args:
        listing: LISTING_SCHEMA and columns of features.
        facts: PLACED_FACTS_SCHEMA and columns of features, of the files that are read, in the same order.
    """
    features = features_of(facts)
    has_groups = facts["group"].null_count < facts.num_rows
    if not features and not has_groups:
        return listing, facts
    is_read = listing["status"].to_numpy() == Status.TO_READ
    places = pa.array(np.cumsum(is_read) - 1, mask=~is_read)
    if has_groups:
        field = listing.schema.field("group")
        groups = pc.coalesce(listing["group"], facts["group"].take(places).cast(field.type))
        listing = with_column(listing, field, groups)
    for feature in features:
        column = facts[PREFIX + feature.name].take(places)
        listing = listing.append_column(feature.arrow_field(PREFIX), column)
    return listing, facts.drop_columns([PREFIX + feature.name for feature in features])
