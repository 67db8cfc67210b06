"""Small pictures of stored records, read from the shards by the index.

So a picture proves that its record can be found, unpacked, parsed and decoded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from shardmill.infra.codecs import Pixels, decode, encode_jpeg, resize_short_side
from shardmill.infra.codecs.arrays import decode_samples, for_people
from shardmill.infra.codecs.jpeg.decode import decode_jpeg_small
from shardmill.infra.codecs.masks import decode_stored_mask, lay_over
from shardmill.infra.dataset.outlines import DRAWN, Outlines
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.format.examples import ImageRecord, parse_example, parse_features
from shardmill.infra.format.known_features import BOXES, key_points
from shardmill.infra.format.records import unpack_record
from shardmill.infra.html.page import data_uri
from shardmill.infra.storage.range_reader import RangeReader

SHORT_SIDE = 112  # pixels; shown at about half of it, so that dense screens stay sharp
LONG_SIDE = 280  # panoramas are cropped around their centre
_QUALITY = 75


def read_small(
    reader: RangeReader,
    manifest: Manifest,
    shard: str,
    offset_bytes: int,
    length_bytes: int,
    *,
    short_side: int = SHORT_SIDE,
) -> tuple[ImageRecord, Pixels]:
    """Read a record and its picture, with its mask laid over it, or its objects drawn: uint8 [h, w, 1 or 3].

    Args:
        reader: of the dataset's folder.
        manifest: of the version.
        shard: path of the shard.
        offset_bytes: of the record in it.
        length_bytes: of the record.
        short_side: of the picture (pixels); the long side is at most 2.5 times as long, cropped at its ends.

    Raises:
        CorruptDataError, NotFoundError, StorageError, ImageRejected: the record is not there, or broken.
    """
    stored = reader.read(shard, offset_bytes, length_bytes)
    payload = unpack_record(stored, manifest.container)
    record = parse_example(payload)
    pixels = resize_short_side(_pixels(record, manifest, short_side), short_side)
    if record.mask is not None and manifest.mask is not None:
        pixels = lay_over(pixels, decode_stored_mask(record.mask), len(manifest.classes))
    if any(feature.name == BOXES for feature in manifest.extra_features):
        values = parse_features(payload)
        objects: dict[str, Any] = {name: np.array(values[name]) for name in DRAWN if name in values}
        pixels = Outlines.of(objects, key_points(manifest.extra_features)).drawn(pixels)
    longest = short_side * LONG_SIDE // SHORT_SIDE
    top, left = (max(0, side - longest) // 2 for side in pixels.shape[:2])
    return record, np.ascontiguousarray(pixels[top : top + longest, left : left + longest])


def picture_uri(pixels: Pixels) -> Markup:
    """Return a small picture, uint8 [h, w, 1 or 3], as a data URI of a JPEG."""
    return data_uri(encode_jpeg(pixels, _QUALITY))


def _pixels(record: ImageRecord, manifest: Manifest, short_side: int) -> Pixels:
    """Decode a stored image: uint8 [H, W, 1 or 3], at least as large as a thumbnail."""
    encoding, samples = manifest.image_encoding, manifest.samples
    if not samples.is_common:
        shape = record.height, record.width, samples.channels
        return for_people(decode_samples(record.image, encoding, shape, samples.dtype))
    if encoding == "jpeg":
        return decode_jpeg_small(record.image, short_side)
    if encoding != "raw":
        return decode(record.image, 3).pixels
    shape = (record.height, record.width, record.channels)
    if len(record.image) != record.height * record.width * record.channels:
        raise CorruptDataError(f"{len(record.image)} bytes of pixels, the record says {shape}")
    return np.frombuffer(record.image, np.uint8).reshape(shape)
