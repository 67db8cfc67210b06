"""Thumbnails of records that the page of a run shows, with links to their source files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from markupsafe import Markup

from infra.codecs import Pixels, encode_jpeg, resize_short_side
from infra.errors import CorruptDataError
from infra.html.page import data_uri
from infra.storage.names import name_of
from training.reading import RecordReader
from training.results.predictions.hardest import Boxes

_SHORT_SIDE, _LONG_SIDE, _QUALITY = 112, 280, 75  # pixels, pixels, JPEG quality
_WHITE, _RED = (255, 255, 255), (230, 40, 40)


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small picture of a record.

    Attributes:
        picture: a data URI.
        width, height: its size (pixels).
        link: the URI of the source file; None: a browser could not open it.
    """

    picture: Markup
    width: int
    height: int
    link: str | None


def read_thumbnails(
    reader: RecordReader,
    wanted: Iterable[tuple[str, str]],
    boxes: Mapping[str, tuple[Boxes, Boxes]] | None = None,
) -> dict[str, Thumbnail]:
    """Read the pictures of records.

    Args:
        reader: the records of a split.
        wanted: id and source URI of each record.
        boxes: record id -> the boxes of its objects and those that were found, which are drawn.

    Returns:
        Record id -> picture; without records that are damaged, or not in the split.
    """
    sources = dict(wanted)
    found = {}
    ids = np.array(sorted(sources), dtype=reader.table.id.dtype)
    for ordinal in np.flatnonzero(np.isin(reader.table.id, ids)).tolist():
        record_id = reader.table.id[ordinal].decode("ascii")
        try:
            drawn = (boxes or {}).get(record_id, ((), ()))
            found[record_id] = _thumbnail(reader, ordinal, sources[record_id], *drawn)
        except CorruptDataError:  # evaluation has reported it
            continue
    return found


def _thumbnail(reader: RecordReader, ordinal: int, source_uri: str, boxes: Boxes, found: Boxes) -> Thumbnail:
    (stored,) = reader.read_images(np.array([ordinal]))
    pixels = resize_short_side(reader.decoded(ordinal, stored), _SHORT_SIDE)
    if boxes or found:
        pixels = with_boxes(with_boxes(pixels, boxes, _WHITE), found, _RED)
    height, width = pixels.shape[:2]
    top, left = (max(0, side - _LONG_SIDE) // 2 for side in (height, width))
    pixels = np.ascontiguousarray(pixels[top : top + _LONG_SIDE, left : left + _LONG_SIDE])
    link = source_link(reader.split.version.manifest.source, source_uri)
    return Thumbnail(data_uri(encode_jpeg(pixels, _QUALITY)), pixels.shape[1], pixels.shape[0], link)


def with_boxes(pixels: Pixels, boxes: Boxes, colour: tuple[int, int, int]) -> Pixels:
    """Draw boxes into a copy of an image.

    Args:
        pixels: uint8 [h, w, 3], or one channel.
        boxes: four edges each, relative to the image.
        colour: red, green and blue.

    Returns:
        uint8 [h, w, 3].
    """
    drawn = np.array(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))
    height, width = drawn.shape[:2]
    for top, left, bottom, right in boxes:
        corners = [
            (round(left * width), round(top * height)),
            (round(right * width) - 1, round(bottom * height) - 1),
        ]
        cv2.rectangle(drawn, corners[0], corners[1], colour, 1)
    return drawn


def source_link(source: str, uri: str) -> str | None:
    """Return a URI that a browser can open for a file of a local source, else None."""
    if not uri or ("://" in source and not source.startswith("file://")):
        return None
    folder = Path(name_of(source.removeprefix("file://")))
    return (folder / name_of(uri)).as_uri() if folder.is_absolute() else None
