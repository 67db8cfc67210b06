"""Thumbnails of records, bounded in number and in bytes.

They are read from the shards by the index, as training reads them. So a page with a picture proves that its
record can be found, unpacked, parsed and decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import numpy as np
from markupsafe import Markup

from shardmill.beam_jobs.report.figures.survey import CANDIDATES_PER_CLASS, Candidate, Survey
from shardmill.infra.codecs import ImageRejected, Pixels, decode, encode_jpeg, resize_short_side
from shardmill.infra.codecs.jpeg.decode import decode_jpeg_small
from shardmill.infra.codecs.masks import decode_stored_mask, lay_over
from shardmill.infra.errors import CorruptDataError, NotFoundError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.format.examples import ImageRecord, parse_example
from shardmill.infra.format.records import unpack_record
from shardmill.infra.html.page import data_uri
from shardmill.infra.processes.process import num_cpus
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.range_reader import RangeReader

# Separate bounds for contact sheets and for records that other sections name.
SHEETS_AT_MOST = 360
NAMED_AT_MOST = 360
BYTES_AT_MOST = 1_900_000  # data URIs of each of the two kinds
THUMBNAIL_SHORT_SIDE = 112  # pixels; shown at about half of it, so that dense screens stay sharp
THUMBNAIL_LONG_SIDE = 280  # panoramas are cropped around their centre
THUMBNAIL_QUALITY = 75
_READ_TOGETHER = 64  # images read at a time by threads; a few more may be read than are used


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small picture of a record as a data URI, its size (pixels), and its caption."""

    data_uri: Markup
    width: int
    height: int
    id: str
    uri: str
    split: str
    label: str


@dataclass(slots=True)
class Pictures:
    """The contact sheet of each class (by label), and the pictures of single records (by id)."""

    sheets: dict[int, list[Thumbnail]] = field(default_factory=dict)
    by_id: dict[str, Thumbnail] = field(default_factory=dict)


def choose_and_read(storage: Storage, manifest: Manifest, survey: Survey, named: Iterable[str]) -> Pictures:
    """Read the thumbnails of the page, until a bound is reached.

    Args:
        storage: the dataset's folder.
        manifest: manifest of the version.
        survey: the records to choose from.
        named: ids of the records that the page names, the most important first.

    Raises:
        CorruptDataError: a record is not where its index says, or is broken.
    """
    wanted = (survey.by_id[record_id] for record_id in named if record_id in survey.by_id)
    pictures = Pictures(by_id=read_thumbnails(storage, manifest, wanted))
    on_sheets = read_thumbnails(storage, manifest, _in_turn(survey), SHEETS_AT_MOST)
    for candidate in _in_turn(survey):
        if candidate.id in on_sheets:
            pictures.sheets.setdefault(candidate.label, []).append(on_sheets[candidate.id])
    return pictures


def _in_turn(survey: Survey) -> Iterator[Candidate]:
    """Yield one of each class, then a second of each, and so on: a bound shortens all classes alike."""
    for place in range(CANDIDATES_PER_CLASS):
        for label in sorted(survey.by_class):
            if place < len(survey.by_class[label]):
                yield survey.by_class[label][place]


def read_thumbnails(
    storage: Storage, manifest: Manifest, candidates: Iterable[Candidate], at_most: int = NAMED_AT_MOST
) -> dict[str, Thumbnail]:
    """Read thumbnails of the first candidates, until a bound is reached; returns record id -> thumbnail.

    Raises:
        CorruptDataError: a record is not where its index says, or is broken.
    """
    found: dict[str, Thumbnail] = {}
    num_bytes = 0
    wanted = iter(candidates)
    with closing(RangeReader(storage)) as reader, ThreadPoolExecutor(num_cpus(), "thumbnails") as threads:
        while some := list(islice(wanted, _READ_TOGETHER)):
            for candidate, thumbnail in zip(
                some, threads.map(partial(_read, reader, manifest), some), strict=True
            ):
                if len(found) >= at_most or num_bytes >= BYTES_AT_MOST:
                    return found
                found[candidate.id] = thumbnail
                num_bytes += len(thumbnail.data_uri)
    return found


def _read(reader: RangeReader, manifest: Manifest, candidate: Candidate) -> Thumbnail:
    try:
        stored = reader.read(candidate.shard, candidate.offset_bytes, candidate.length_bytes)
        record = parse_example(unpack_record(stored, manifest.container))
        pixels = _with_mask(_small(_pixels(record, manifest.image_encoding)), record.mask, manifest)
    except (CorruptDataError, ImageRejected, NotFoundError) as error:
        raise CorruptDataError(
            f"{candidate.shard} at byte {candidate.offset_bytes}: {error.message}; nothing was published",
            "delete this shard and run again: it is written anew",
        ) from error
    return Thumbnail(
        data_uri=data_uri(encode_jpeg(pixels, THUMBNAIL_QUALITY)),
        width=pixels.shape[1],
        height=pixels.shape[0],
        id=candidate.id,
        uri=candidate.uri,
        split=candidate.split,
        label=record.label_name,
    )


def _pixels(record: ImageRecord, encoding: str) -> Pixels:
    """Decode a stored image: uint8 [H, W, 1 or 3], at least as large as a thumbnail."""
    if encoding == "jpeg":
        return decode_jpeg_small(record.image, THUMBNAIL_SHORT_SIDE)
    if encoding != "raw":
        return decode(record.image, 3).pixels
    shape = (record.height, record.width, record.channels)
    if len(record.image) != record.height * record.width * record.channels:
        raise CorruptDataError(f"{len(record.image)} bytes of pixels, the record says {shape}")
    return np.frombuffer(record.image, np.uint8).reshape(shape)


def _with_mask(pixels: Pixels, stored: bytes | None, manifest: Manifest) -> Pixels:
    """Lay the mask of a record, if it has one, over its picture, and crop pictures that are too long."""
    if stored is not None and manifest.mask is not None:
        pixels = lay_over(pixels, decode_stored_mask(stored), len(manifest.classes))
    top, left = (max(0, side - THUMBNAIL_LONG_SIDE) // 2 for side in pixels.shape[:2])
    return np.ascontiguousarray(pixels[top : top + THUMBNAIL_LONG_SIDE, left : left + THUMBNAIL_LONG_SIDE])


def _small(pixels: Pixels) -> Pixels:
    return resize_short_side(pixels, THUMBNAIL_SHORT_SIDE)
