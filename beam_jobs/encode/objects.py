"""Objects of images, placed in the stored images once the facts of all images are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import ImageConfig, PrepareConfig
from shardmill.beam_jobs.encode.masks import with_mask_features
from shardmill.beam_jobs.reasons import OTHER_SIZE
from shardmill.beam_jobs.schemas import PLAN, Status, has_masks
from shardmill.beam_jobs.tables.columns import lengths_of, lists_of, values_of, with_column
from shardmill.beam_jobs.tables.features import PREFIX, features_of
from shardmill.infra.codecs.geometry import (
    Boxes,
    Places,
    geometry,
    have_area,
    place_boxes,
    turn_boxes_upright,
    upright_sizes,
)
from shardmill.infra.format.known_features import (
    ANNOTATED_SIZE,
    BOX_NUMBERS,
    BOXES,
    CROWDS,
    LABELS,
    LEFT_OUT,
    OBJECT_LABELS,
)
from shardmill.infra.progress import log
from shardmill.infra.readable import counted

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_KEPT_OF_LOST = ("sha256", "status", "stage", "reason", "message")


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
    """Turn, cut and scale the boxes of all images as the images were.

    Args:
        listing: LISTING_SCHEMA and columns of features (LISTED_OBJECT_FEATURES).
        facts: PLACED_FACTS_SCHEMA, of the files that are read, in the same order.
        image: how images are stored.
        upright: boxes are of the upright image, if the size of the annotated image does not tell.
        relative: boxes are relative to the annotated image, not in pixels.
    """
    status = facts["status"].to_numpy()
    is_stored = (status == Status.STORED) | (status == Status.STORED_BEFORE)
    read = np.flatnonzero(listing["status"].to_numpy() == Status.TO_READ)
    frames = _Frames.of(facts, _annotated_sizes(listing, read), upright=upright)
    fits = is_stored & frames.fit
    counts = lengths_of(listing[PREFIX + BOXES]) // BOX_NUMBERS
    of_row = np.repeat(np.arange(listing.num_rows), counts)
    of_fact = np.full(listing.num_rows, -1, np.int64)
    of_fact[read[fits]] = np.flatnonzero(fits)
    images = of_fact[of_row]
    boxes = values_of(listing[PREFIX + BOXES]).to_numpy().astype(np.float64).reshape(-1, BOX_NUMBERS)
    is_placed = images >= 0
    if relative:
        boxes[is_placed] *= frames.scales(images[is_placed])
    boxes[is_placed] = frames.place(boxes[is_placed], images[is_placed], image)
    stored = boxes.astype(np.float32)
    kept = have_area(stored) | ~is_placed
    placed = _with_kept(listing, stored, of_row, kept)
    lost = is_stored & ~frames.fit
    return PlacedObjects(placed, _without_lost(facts, lost, frames), int(np.count_nonzero(~kept)))


@dataclass(frozen=True)
class _Frames:
    """The images that boxes are of.

    Attributes:
        sizes: int64 [N, 2], height, width of each file, before it is turned upright; 1 if it is not known.
        orientations: int64 [N], EXIF orientation of each file.
        annotated: int64 [N, 2], height, width of the annotated image; 0 if it is not told.
        is_upright: bool [N], whether its boxes are of the upright image.
        fit: bool [N], whether the annotated image has the size of the file.
    """

    sizes: Int64
    orientations: Int64
    annotated: Int64
    is_upright: Mask
    fit: Mask

    @classmethod
    def of(cls, facts: pa.Table, annotated: Int64, *, upright: bool) -> _Frames:
        """Compare the annotated sizes with those of the files."""
        names = ("source_height", "source_width", "orientation")
        height, width, orientations = (
            pc.fill_null(facts[name], 1).to_numpy().astype(np.int64) for name in names
        )
        sizes = np.stack([height, width], -1)
        is_told = annotated.any(1)
        as_file = ~is_told | (annotated == sizes).all(1)
        as_upright = ~is_told | (annotated == upright_sizes(sizes, orientations)).all(1)
        is_upright = as_upright if upright else as_upright & ~as_file
        return cls(sizes, orientations, annotated, is_upright, as_file | as_upright)

    def scales(self, images: Int64) -> Int64:
        """Return height, width, height, width of the image that boxes are of: int64 [N, 4] (pixels)."""
        upright = upright_sizes(self.sizes[images], self.orientations[images])
        sizes = np.where(self.is_upright[images, np.newaxis], upright, self.sizes[images])
        return np.tile(sizes, 2)

    def place(self, boxes: Boxes, images: Int64, image: ImageConfig) -> Boxes:
        """Place boxes in the stored images: float64 [N, 4], relative to them."""
        sizing, used = image.sizing, np.unique(images)
        turned = turn_boxes_upright(boxes, self.sizes[images], self.orientations[images])
        upright = np.where(self.is_upright[images, np.newaxis], boxes, turned)
        sizes = upright_sizes(self.sizes[used], self.orientations[used])
        places = Places.of(sizes, lambda height, width: geometry(height, width, sizing))
        return place_boxes(upright, places, np.searchsorted(used, images))


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


def _without_lost(facts: pa.Table, lost: Mask, frames: _Frames) -> pa.Table:
    """Return the facts, in which images of another size than the annotated ones are quarantined."""
    if not lost.any():
        return facts
    chosen = pa.array(lost)
    messages = [
        f"the annotation is of an image of {width}×{height} pixels, and this has {source[1]}×{source[0]}"
        for (height, width), source in zip(frames.annotated[lost], frames.sizes[lost], strict=True)
    ]
    said = {
        "status": pa.array(np.full(len(messages), Status.QUARANTINED, np.int8)),
        "stage": pa.array([PLAN] * len(messages)),
        "reason": pa.array([OTHER_SIZE] * len(messages)),
        "message": pa.array(messages),
    }
    columns = {}
    for field in facts.schema:
        column = facts[field.name].combine_chunks()
        if field.name in said:
            columns[field.name] = pc.replace_with_mask(column, chosen, said[field.name].cast(field.type))
        elif field.name in _KEPT_OF_LOST:
            columns[field.name] = column
        else:
            columns[field.name] = pc.if_else(chosen, pa.scalar(None, field.type), column)
    return pa.table(columns).cast(facts.schema)


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
        upright = config.source.objects.coordinates == "upright"
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
