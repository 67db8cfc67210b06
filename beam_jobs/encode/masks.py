"""The masks of images: read, made to fit the stored images, and encoded; and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import ImageConfig, MasksConfig
from shardmill.beam_jobs.encode.placing import Frames, Placing
from shardmill.beam_jobs.reasons import BROKEN_MASK, MASK_REASONS, OTHER_MASK_SIZE
from shardmill.beam_jobs.schemas import MASK_COLUMNS, MASK_MEMBER_COLUMNS, MASK_SHAPES
from shardmill.beam_jobs.sources.annotations.drawing import Drawing
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.codecs import ImageRejected, SourceFacts
from shardmill.infra.codecs.formats import apply_orientation
from shardmill.infra.codecs.geometry import geometry, upright_sizes
from shardmill.infra.codecs.masks import (
    ClassValues,
    class_numbers,
    classes_shown,
    decode_mask,
    encode_mask,
    fit_mask,
)
from shardmill.infra.codecs.polygons import fill_rings
from shardmill.infra.format.known_features import LABELS, MASK_FEATURES, MASK_URI, mask_format

Size = tuple[int, int]
Int64 = npt.NDArray[np.int64]

_BETWEEN = ", "


@dataclass(frozen=True, slots=True)
class StoredMask:
    """The stored form of the mask of an image.

    Attributes:
        mask: encoded.
        labels: numbers of the classes that it shows, rising.
        pixels: number of pixels of each.
    """

    mask: bytes
    labels: Sequence[int]
    pixels: Sequence[int]


class MaskConverter:
    """Converts masks to their stored form.

    Args:
        masks: classes of the masks.
        image: how images are stored.
    """

    def __init__(self, masks: MasksConfig, image: ImageConfig) -> None:
        self._image = image
        self._are_stored = masks.coordinates == "stored"
        self._values = ClassValues(
            masks.codes(),
            masks.ignored(),
            masks.in_color,
            masks.unknown == "ignore",
            mask_format(len(masks.classes)).ignore,
        )

    def convert(self, data: bytes, uri: str, source: SourceFacts) -> StoredMask:
        """Convert a mask as its image was.

        Args:
            data: the file of the mask.
            uri: its name, for messages.
            source: facts about the image.

        Raises:
            ImageRejected: one of MASK_REASONS.
        """
        try:
            samples, facts = decode_mask(data, self._image.max_pixels, self._values.in_color)
            upright = self._turned(samples, facts, source)
            numbers = class_numbers(upright, self._values)
        except ImageRejected as rejected:
            reason = rejected.reason if rejected.reason in MASK_REASONS else BROKEN_MASK
            raise ImageRejected(reason, f"its mask {uri}: {rejected.message}") from rejected
        height, width = numbers.shape
        to = geometry(height, width, self._image.sizing)
        stored = fit_mask(numbers, to, self._values.ignore)
        return StoredMask(encode_mask(stored), *classes_shown(stored, self._values.ignore))

    def draw(self, data: bytes, uri: str, source: SourceFacts) -> StoredMask:
        """Draw the mask of an image from shapes, at the size of the stored image.

        Args:
            data: a Drawing as bytes.
            uri: the annotation, for messages.
            source: facts about the image.

        Raises:
            ImageRejected: the annotation is of an image of another size (``other_mask_size``).
        """
        drawing = Drawing.of(data)
        frames = Frames.compared(
            np.array([[source.height, source.width]]),
            np.array([source.orientation]),
            np.array([drawing.size]),
            upright=drawing.upright,
        )
        if not frames.fit[0]:
            annotated, own = (f"{width}×{height}" for height, width in (drawing.size, frames.sizes[0]))
            message = f"the annotation {uri} is of an image of {annotated} pixels, and this has {own}"
            raise ImageRejected(OTHER_MASK_SIZE, message)
        placing = Placing.of(
            frames, np.zeros(len(drawing.rings), np.int64), self._image, relative=drawing.relative
        )
        points, counts, rings = placing.rings(drawing.points, drawing.ring_points, drawing.rings)
        height, width = upright_sizes(frames.sizes, frames.orientations)[0].tolist()
        to = geometry(height, width, self._image.sizing)
        stored = np.full(to.canvas, drawing.ignore, np.uint8 if drawing.ignore < 1 << 8 else np.uint16)
        top, left = to.offset
        stored[top : top + to.scaled[0], left : left + to.scaled[1]] = drawing.background
        _fill(stored, drawing.numbers, points * to.canvas, counts, rings)
        return StoredMask(encode_mask(stored), *classes_shown(stored, drawing.ignore))

    def _turned(
        self, samples: npt.NDArray[np.generic], facts: SourceFacts, source: SourceFacts
    ) -> npt.NDArray[np.generic]:
        """Turn a mask upright with its image, unless it is upright."""
        size, as_file = samples.shape[:2], (source.height, source.width)
        orientation = np.array([source.orientation])
        as_upright: Size = tuple(upright_sizes(np.array([as_file]), orientation)[0].tolist())
        is_turned = facts.orientation != 1  # the mask has an orientation of its own
        may_be_stored = size == as_file and not is_turned
        may_be_upright = size == as_upright
        if not may_be_stored and not may_be_upright:
            raise ImageRejected(
                OTHER_MASK_SIZE,
                f"{size[1]}×{size[0]} pixels, and the image has {as_upright[1]}×{as_upright[0]}",
            )
        if may_be_stored and (self._are_stored or not may_be_upright):
            return apply_orientation(samples, source.orientation)
        return samples


def _fill(
    mask: npt.NDArray[np.generic],
    numbers: Int64,
    points: npt.NDArray[np.float64],
    counts: Int64,
    rings: Int64,
) -> None:
    """Give the pixels of each object its number, one object after the other.

    Args:
        mask: [H, W], written.
        numbers: int64 [N], of the objects.
        points: float64 [P, 2], y and x in pixels, within the mask.
        counts: int64 [R], number of points of each ring.
        rings: int64 [N], number of rings of each object.
    """
    of_object, of_ring = (np.concatenate([[0], np.cumsum(each)]) for each in (rings, counts))
    for number, (first, last) in zip(numbers, pairwise(of_object.tolist()), strict=True):
        own = points[of_ring[first] : of_ring[last]]
        if len(own):
            (top, left), (bottom, right) = np.floor(own.min(0)).astype(int), np.ceil(own.max(0)).astype(int)
            part = mask[top:bottom, left:right]
            part[fill_rings(own - (top, left), counts[first:last], part.shape)] = number


def with_mask_features(listing: pa.Table, classes: Sequence[str]) -> pa.Table:
    """Return a listing with the places of masks as a feature, and the classes that they show as labels.

    Args:
        listing: LISTING_SCHEMA, MASK_COLUMNS and columns of features, READ_MASK_FEATURES among them.
        classes: names by number.
    """
    lists = listing[PREFIX + LABELS].combine_chunks()
    names = pa.array(classes, pa.string()).take(lists.flatten())
    offsets = np.concatenate([[0], np.cumsum(pc.fill_null(pc.list_value_length(lists), 0).to_numpy())])
    named = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), names)
    texts = pc.if_else(pc.is_valid(lists), pc.binary_join(named, _BETWEEN), pa.scalar(None, pa.string()))
    at = listing.schema.get_field_index("label")
    listing = listing.set_column(at, pa.field("label", pa.string()), texts)
    (of_uri,) = (feature for feature in MASK_FEATURES if feature.name == MASK_URI)
    listing = listing.append_column(of_uri.arrow_field(PREFIX), listing[MASK_COLUMNS[0].name])
    places = (field.name for field in (*MASK_COLUMNS, *MASK_MEMBER_COLUMNS, MASK_SHAPES))
    return listing.drop_columns([name for name in places if name in listing.schema.names])
