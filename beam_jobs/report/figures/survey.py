"""A survey of the records: one pass over the indexes for distributions, traits and records to show.

Traits are formats, colours and orientations of the source images, and how they were handled.

Memory does not grow with the number of records: values go into fixed logarithmic bins or are counted, and
only a few candidates for the contact sheet of each class are kept.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardmill.beam_jobs.report.figures.histogram import LogHistogram
from shardmill.infra.format.contract import Manifest
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import CROWDS, LEFT_OUT
from shardmill.infra.html.page import pixels, ratio
from shardmill.infra.readable import readable_bytes
from shardmill.infra.storage.filesystem import Storage

CANDIDATES_PER_CLASS = 12

# Columns whose values are counted. Null and false are the ordinary case and count as "".
TRAITS = (
    "source_format", "source_color", "orientation", "icc_profile", "had_alpha", "salvaged", "stored_from",
)  # fmt: skip

_COLUMNS = [
    "id", "offset_bytes", "length_bytes", "label", "source_uri", "stored_bytes", "height", "width",
    "source_height", "source_width", "source_bytes", *TRAITS,
]  # fmt: skip
_ROWS_AT_A_TIME = 8192
# Names of colour profiles come from the files: a hostile source could have another one in each image.
_VALUES_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A record that the page may show, and its place in the shards."""

    id: str
    label: int
    uri: str
    split: str
    shard: str
    offset_bytes: int
    length_bytes: int


@dataclass(slots=True)
class Survey:
    """Histograms and examples from one pass over the indexes."""

    short_side: LogHistogram = field(default_factory=lambda: LogHistogram(1, 2**16))
    aspect: LogHistogram = field(default_factory=lambda: LogHistogram(1 / 64, 64))
    source_bytes: LogHistogram = field(default_factory=lambda: LogHistogram(1, 2**40))
    stored_bytes: LogHistogram = field(default_factory=lambda: LogHistogram(1, 2**40))
    traits: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in TRAITS})
    described: dict[str, Counter[str]] = field(default_factory=dict)  # feature -> value -> records
    total_source_bytes: int = 0
    objects: ObjectFigures | None = None  # None if the records have no boxes
    by_class: dict[int, list[Candidate]] = field(default_factory=dict)  # label -> smallest ids first
    by_id: dict[str, Candidate] = field(default_factory=dict)  # candidates of the wanted ids

    @property
    def measured(self) -> list[tuple[str, LogHistogram, Callable[[float], str]]]:
        """The title of each histogram, and how its values are written."""
        return [
            ("Short side of sources", self.short_side, pixels),
            ("Width ÷ height", self.aspect, ratio),
            ("Source files", self.source_bytes, readable_bytes),
            ("Stored images", self.stored_bytes, readable_bytes),
        ]


def survey_indexes(storage: Storage, manifest: Manifest, wanted_ids: Collection[str]) -> Survey:
    """Read every index of the version once.

    Args:
        storage: the dataset's folder.
        manifest: manifest of the version.
        wanted_ids: records to locate whatever their class.
    """
    survey = Survey()
    survey.described = {name: Counter() for name in _described_columns(manifest.extra_features)}
    of_objects = object_columns(manifest)
    survey.objects = ObjectFigures() if of_objects else None
    columns = [*_COLUMNS, *survey.described, *of_objects]
    wanted = pa.array(sorted(wanted_ids), pa.string())
    for shard in manifest.shards:
        for table in _parts(storage, shard.index_path, columns):
            _count(survey, table)
            if survey.objects is not None:
                survey.objects.add(table)
            _offer(survey, _smallest_ids(table), shard.split, shard.path)
            for row in table.filter(pc.is_in(table["id"], wanted)).to_pylist():
                survey.by_id[row["id"]] = _candidate(row, shard.split, shard.path)
    return survey


def find_records(
    storage: Storage, manifest: Manifest, wanted_ids: Collection[str], without: Collection[str] = ()
) -> dict[str, Candidate]:
    """Find the places of the records with these ids.

    Args:
        storage: the dataset's folder.
        manifest: manifest of the version.
        wanted_ids: record ids.
        without: paths of shards that need not be searched.
    """
    found: dict[str, Candidate] = {}
    wanted = pa.array(sorted(wanted_ids), pa.string())
    for shard in manifest.shards:
        if len(found) < len(wanted) and shard.path not in without:
            columns = ["id", "label", "source_uri", "offset_bytes", "length_bytes"]
            for table in _parts(storage, shard.index_path, columns):
                for row in table.filter(pc.is_in(table["id"], wanted)).to_pylist():
                    found[row["id"]] = _candidate(row, shard.split, shard.path)
    return found


def _parts(storage: Storage, index_path: str, columns: list[str]) -> Iterator[pa.Table]:
    """Read an index, some thousand rows at a time."""
    with storage.open_input(index_path) as stream, pq.ParquetFile(stream) as file:
        for batch in file.iter_batches(batch_size=_ROWS_AT_A_TIME, columns=columns):
            yield pa.Table.from_batches([batch])


def _count(survey: Survey, table: pa.Table) -> None:
    def column(name: str) -> npt.NDArray[np.float64]:
        values: npt.NDArray[Any] = table[name].to_numpy()
        return np.maximum(np.nan_to_num(values.astype(np.float64)), 1.0)

    height, width = column("source_height"), column("source_width")
    survey.short_side.add(np.minimum(height, width))
    # Sizes are as in the file; images with orientations 5 to 8 (EXIF) lie on their side in it.
    aspect = width / height
    survey.aspect.add(np.where(column("orientation") >= 5, 1 / aspect, aspect))
    survey.source_bytes.add(column("source_bytes"))
    survey.stored_bytes.add(column("stored_bytes"))
    survey.total_source_bytes += int(pc.sum(table["source_bytes"]).as_py() or 0)
    for name, counts in survey.traits.items():
        _count_values(counts, table[name])
    for name, counts in survey.described.items():
        _count_values(counts, _counted_values(table[name], name))


def _count_values(counts: Counter[str], column: pa.ChunkedArray) -> None:
    for found in pc.value_counts(column).to_pylist():
        value = "" if found["values"] is None or found["values"] is False else str(found["values"])
        if len(counts) >= _VALUES_KEPT and value not in counts:
            value = "others"
        counts[value] += found["counts"]


def _smallest_ids(table: pa.Table) -> Iterable[dict[str, Any]]:
    """Choose the rows with the smallest ids of each class: a sample that does not depend on file order."""
    ordered = table.sort_by([("label", "ascending"), ("id", "ascending")])
    labels: npt.NDArray[Any] = ordered["label"].to_numpy()
    starts = np.flatnonzero(np.diff(labels, prepend=labels[:1] - 1))
    ends = np.append(starts[1:], len(labels))
    keep = [
        at for start, end in zip(starts, ends, strict=True) for at in range(start, end)[:CANDIDATES_PER_CLASS]
    ]
    rows: list[dict[str, Any]] = ordered.take(pa.array(keep, pa.int64())).to_pylist()
    return rows


def _offer(survey: Survey, rows: Iterable[dict[str, Any]], split: str, shard: str) -> None:
    for row in rows:
        kept = survey.by_class.setdefault(row["label"], [])
        kept.append(_candidate(row, split, shard))
    for kept in survey.by_class.values():
        kept.sort(key=lambda candidate: candidate.id)
        del kept[CANDIDATES_PER_CLASS:]


def _candidate(row: dict[str, Any], split: str, shard: str) -> Candidate:
    return Candidate(
        id=row["id"],
        label=row["label"],
        uri=row["source_uri"],
        split=split,
        shard=shard,
        offset_bytes=row["offset_bytes"],
        length_bytes=row["length_bytes"],
    )


EXAMPLES = 12


@dataclass(slots=True)
class ObjectFigures:
    """Counts over all records of a version with boxes.

    Attributes:
        num_objects: in the records.
        num_crowds: how many of these are boxes around groups of objects, or difficult ones.
        num_left_out: objects of annotations that are not in their records.
        num_images: records that lack objects of their annotations.
        examples: (objects left out, objects in the record, URI) of those that lack most.
    """

    num_objects: int = 0
    num_crowds: int = 0
    num_left_out: int = 0
    num_images: int = 0
    examples: list[tuple[int, int, str]] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Count the rows of an index that has the columns of ``object_columns``."""
        crowds, left_out = rows[CROWDS].combine_chunks(), rows[LEFT_OUT]
        self.num_objects += pc.sum(pc.list_value_length(crowds)).as_py() or 0
        self.num_crowds += pc.sum(pc.list_flatten(crowds)).as_py() or 0
        self.num_left_out += pc.sum(left_out).as_py() or 0
        lacking = rows.filter(pc.greater(left_out, 0))
        self.num_images += lacking.num_rows
        found = zip(
            lacking[LEFT_OUT].to_pylist(),
            pc.fill_null(pc.list_value_length(lacking[CROWDS]), 0).to_pylist(),
            lacking["source_uri"].to_pylist(),
            strict=True,
        )
        most = heapq.nsmallest(EXAMPLES, [*self.examples, *found], key=lambda each: (-each[0], each[2]))
        self.examples = most


def object_columns(manifest: Manifest) -> list[str]:
    """Return the columns of the indexes that tell of objects; none if the version has no boxes."""
    names = {feature.name for feature in manifest.extra_features}
    return [CROWDS, LEFT_OUT] if {CROWDS, LEFT_OUT} <= names else []


ROWS_SHOWN = 7

_TURNED = {
    "": "not stated",
    "1": "upright",
    "2": "mirrored",
    "3": "upside down",
    "4": "upside down, mirrored",
    "5": "on its side, mirrored",
    "6": "on its side, turned right",
    "7": "on its side, mirrored",
    "8": "on its side, turned left",
}
_STORED_FROM = {
    "planes": "resized as YCbCr planes",
    "pixels": "resized as pixels",
    "source": "the source's own bytes",
    "": "not stated",
}


@dataclass(frozen=True, slots=True)
class Trait:
    """One trait: (value, number of records), the most frequent value first."""

    title: str
    rows: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        """Number of records."""
        return sum(count for _, count in self.rows)


def traits(survey: Survey) -> list[Trait]:
    """Return the traits to plot: those that are known of some record."""
    found = survey.traits
    handling: Counter[str] = Counter()
    handling["converted to sRGB"] = _known(found["icc_profile"])
    handling["transparent, put on the background"] = _known(found["had_alpha"])
    handling["salvaged: the file ends early"] = _known(found["salvaged"])
    for value, words in _STORED_FROM.items():
        if value:
            handling[words] = found["stored_from"][value]
    turned: Counter[str] = Counter()
    for value, count in found["orientation"].items():
        turned[_TURNED.get(value, value)] += count
    profiles = Counter({value: count for value, count in found["icc_profile"].items() if value})
    cards = [
        _trait("Format", found["source_format"], "unknown"),
        _trait("Colour", found["source_color"], "not stated"),
        _trait("Orientation (EXIF)", turned, "not stated"),
        _trait("What was done", +handling, ""),
        _trait("Colours converted to sRGB", profiles, ""),
        *(_trait(_TITLES[name], counts, "not stated") for name, counts in survey.described.items()),
    ]
    return [card for card in cards if {name for name, _ in card.rows} - {"not stated"}]


def _known(counts: Counter[str]) -> int:
    return sum(count for value, count in counts.items() if value)


def _trait(title: str, counts: Counter[str], unnamed: str) -> Trait:
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows = [(value or unnamed, count) for value, count in ranked if count]
    if len(rows) > ROWS_SHOWN:
        rest = sum(count for _, count in rows[ROWS_SHOWN - 1 :])
        rows = [*rows[: ROWS_SHOWN - 1], (f"{len(ranked) - ROWS_SHOWN + 1:,} others", rest)]
    return Trait(title, tuple(rows))


_TITLES: Final = {
    "captured_at": "Year of capture",
    "camera_model": "Camera",
    "digital_source_type": "Declared origin",
    "licence": "Licence",
    "license": "Licence",
    "attribution": "Attribution",
    "gps_present": "Position in the file",
    "c2pa_present": "Content Credentials",
}
_TRUTHS: Final = {"0": "none", "1": "present"}
_YEAR_CHARACTERS = 4
_MAX_CHARACTERS = 80


def _described_columns(features: Sequence[Feature]) -> list[str]:
    """Return the features that are counted: single texts, and those that are 1 or 0."""
    found = []
    for feature in features:
        is_truth = feature.name in ("gps_present", "c2pa_present") and feature.dtype == "int64"
        if feature.name in _TITLES and feature.shape == "scalar" and (feature.is_text or is_truth):
            found.append(feature.name)
    return found


def _counted_values(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return the values of a feature as they are counted: string [N], null where a record lacks it."""
    texts = column.cast(pa.string())
    if name == "captured_at":
        return pc.utf8_slice_codeunits(texts, 0, _YEAR_CHARACTERS)
    if name in ("gps_present", "c2pa_present"):
        at = pc.index_in(texts, pa.array(list(_TRUTHS)))
        return pa.chunked_array([pa.array(list(_TRUTHS.values())).take(at.combine_chunks())])
    return pc.utf8_slice_codeunits(texts, 0, _MAX_CHARACTERS)
