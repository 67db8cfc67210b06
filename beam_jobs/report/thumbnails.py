"""Thumbnails of records, bounded in number and in bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from markupsafe import Markup

from shardmill.beam_jobs.report.figures.survey import CANDIDATES_PER_CLASS, Candidate, Survey
from shardmill.infra.codecs import ImageRejected
from shardmill.infra.dataset.thumbnails import picture_uri, read_small
from shardmill.infra.errors import CorruptDataError, NotFoundError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.processes.process import num_cpus
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.range_reader import RangeReader

# Separate bounds for contact sheets and for records that other sections name.
SHEETS_AT_MOST = 360
NAMED_AT_MOST = 360
BYTES_AT_MOST = 1_900_000  # data URIs of each of the two kinds
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
        record, pixels = read_small(
            reader, manifest, candidate.shard, candidate.offset_bytes, candidate.length_bytes
        )
    except (CorruptDataError, ImageRejected, NotFoundError) as error:
        raise CorruptDataError(
            f"{candidate.shard} at byte {candidate.offset_bytes}: {error.message}; nothing was published",
            "delete this shard and run again: it is written anew",
        ) from error
    return Thumbnail(
        data_uri=picture_uri(pixels),
        width=pixels.shape[1],
        height=pixels.shape[0],
        id=candidate.id,
        uri=candidate.uri,
        split=candidate.split,
        label=record.label_name,
    )
