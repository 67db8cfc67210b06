"""The pictures of the report: thumbnails read from the shards, bounded in number and in bytes.

They are read from what was stored, by the index, as training will read them; a page that shows a picture
has proved that its record can be found, unpacked, parsed and decoded.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field

from beam_jobs.report.survey import CANDIDATES_PER_CLASS, Candidate, Survey
from infra.codecs import ImageRejected, decode, encode_jpeg, resize_short_side
from infra.contract import Manifest
from infra.errors import CorruptDataError
from infra.examples import parse_example
from infra.ranges import RangeReader
from infra.records import unpack_record
from infra.storage import Storage

THUMBNAILS_AT_MOST = 360
THUMBNAIL_BYTES_AT_MOST = 4 << 20
THUMBNAIL_SHORT_SIDE = 112  # pixels; shown at about half of it, so that dense screens stay sharp
THUMBNAIL_QUALITY = 78


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small picture of a record as a data URI, and what to say of it."""

    data_uri: str
    id: str
    uri: str
    split: str
    label: str


@dataclass(slots=True)
class Pictures:
    """The contact sheet of each class (by its label) and the pictures of single records (by id)."""

    sheets: dict[int, list[Thumbnail]] = field(default_factory=dict)
    by_id: dict[str, Thumbnail] = field(default_factory=dict)


def choose_and_read(storage: Storage, manifest: Manifest, survey: Survey) -> Pictures:
    """Thumbnails for the page, until a bound is reached.

    First the records that the page names (duplicates, conflicts), then one picture of each class, then a
    second, and so on, so that a bound takes depth from all classes alike.

    Raises:
        CorruptDataError: a record is not where its index says, or is broken.
    """
    pictures = Pictures()
    budget = THUMBNAIL_BYTES_AT_MOST
    reader = RangeReader(storage)
    try:
        for count, (candidate, on_sheet) in enumerate(_in_order(survey)):
            if count >= THUMBNAILS_AT_MOST or budget <= 0:
                break
            thumbnail = _read(reader, manifest, candidate)
            budget -= len(thumbnail.data_uri)
            if on_sheet:
                pictures.sheets.setdefault(candidate.label, []).append(thumbnail)
            else:
                pictures.by_id[candidate.id] = thumbnail
    finally:
        reader.close()
    return pictures


def _in_order(survey: Survey) -> Iterator[tuple[Candidate, bool]]:
    """(candidate, whether it belongs to its class's contact sheet), the most wanted first."""
    for record_id in sorted(survey.by_id):
        yield survey.by_id[record_id], False
    for place in range(CANDIDATES_PER_CLASS):
        for label in sorted(survey.by_class):
            if place < len(survey.by_class[label]):
                yield survey.by_class[label][place], True


def _read(reader: RangeReader, manifest: Manifest, candidate: Candidate) -> Thumbnail:
    stored = reader.read(candidate.shard, candidate.offset_bytes, candidate.length_bytes)
    try:
        record = parse_example(unpack_record(stored, manifest.container))
        pixels = resize_short_side(decode(record.image, 3).pixels, THUMBNAIL_SHORT_SIDE)
    except (CorruptDataError, ImageRejected) as error:
        raise CorruptDataError(
            f"{candidate.shard} at byte {candidate.offset_bytes}: {error.message}; nothing was published",
            "delete this shard and run again: it is written anew",
        ) from error
    picture = base64.b64encode(encode_jpeg(pixels, THUMBNAIL_QUALITY)).decode("ascii")
    return Thumbnail(
        data_uri=f"data:image/jpeg;base64,{picture}",
        id=candidate.id,
        uri=candidate.uri,
        split=candidate.split,
        label=record.label_name,
    )
