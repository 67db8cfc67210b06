"""One pass over the indexes of a version: distributions of sizes, and which records to show.

Memory stays flat in the number of records: values go straight into fixed logarithmic bins, and of each
class only the few candidates for its contact sheet are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.contract import Manifest
from infra.storage import Storage

CANDIDATES_PER_CLASS = 12
BARS_SHOWN = 28

_COLUMNS = [
    "id", "offset_bytes", "length_bytes", "label", "source_uri", "stored_bytes", "height", "width",
    "source_format", "source_height", "source_width", "source_bytes", "orientation",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a histogram: values in [low, high)."""

    low: float
    high: float
    count: int


class LogHistogram:
    """Counts of positive values in bins of equal ratio.

    Args:
        low, high: the range; what lies outside counts in the outermost bins.
        per_octave: bins between a value and its double.
    """

    def __init__(self, low: float, high: float, per_octave: int = 32) -> None:
        self._start = math.log2(low)
        self._per_octave = per_octave
        self._counts: npt.NDArray[np.int64] = np.zeros(
            max(1, math.ceil((math.log2(high) - self._start) * per_octave)), np.int64
        )
        self.minimum = math.inf
        self.maximum = -math.inf

    def add(self, values: npt.NDArray[np.float64]) -> None:
        """Count values: float64 [N], all positive."""
        if not len(values):
            return
        self.minimum = min(self.minimum, float(values.min()))
        self.maximum = max(self.maximum, float(values.max()))
        # Half a millionth of a bin up, so that a power of two is never rounded into the bin below.
        bins = np.floor((np.log2(values) - self._start) * self._per_octave + 5e-7).astype(np.int64)
        bins = np.clip(bins, 0, len(self._counts) - 1)
        self._counts += np.bincount(bins, minlength=len(self._counts))

    @property
    def total(self) -> int:
        return int(self._counts.sum())

    def bars(self, at_most: int = BARS_SHOWN) -> list[Bar]:
        """The occupied range in at most so many bars of equal ratio."""
        occupied = np.flatnonzero(self._counts)
        if not len(occupied):
            return []
        first, last = int(occupied[0]), int(occupied[-1])
        merge = max(1, math.ceil((last - first + 1) / at_most))
        return [
            Bar(self._edge(at), self._edge(at + merge), int(self._counts[at : at + merge].sum()))
            for at in range(first, last + 1, merge)
        ]

    def median(self) -> float:
        """The middle of the bin that holds the middle value."""
        if not self.total:
            return math.nan
        at = int(np.searchsorted(np.cumsum(self._counts), (self.total + 1) // 2))
        middle = 2 ** (self._start + (at + 0.5) / self._per_octave)
        return min(max(middle, self.minimum), self.maximum)

    def _edge(self, at: int) -> float:
        return float(2 ** (self._start + at / self._per_octave))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A record that the page may show, and where it lies."""

    id: str
    label: int
    uri: str
    split: str
    shard: str
    offset_bytes: int
    length_bytes: int


@dataclass(slots=True)
class Survey:
    """What one pass over the indexes found."""

    short_side: LogHistogram = field(default_factory=lambda: LogHistogram(1, 2**16))
    aspect: LogHistogram = field(default_factory=lambda: LogHistogram(1 / 64, 64))
    source_bytes: LogHistogram = field(default_factory=lambda: LogHistogram(1, 2**40))
    stored_bytes: LogHistogram = field(default_factory=lambda: LogHistogram(1, 2**40))
    formats: dict[str, int] = field(default_factory=dict)
    total_source_bytes: int = 0
    by_class: dict[int, list[Candidate]] = field(default_factory=dict)  # label -> smallest ids first
    by_id: dict[str, Candidate] = field(default_factory=dict)  # of the wanted ids


def survey_indexes(storage: Storage, manifest: Manifest, wanted_ids: frozenset[str]) -> Survey:
    """Read every index of the version once.

    Args:
        wanted_ids: records to locate whatever their class.
    """
    survey = Survey()
    wanted = pa.array(sorted(wanted_ids), pa.string())
    for shard in manifest.shards:
        with storage.open_input(shard.index_path) as stream:
            table = pq.read_table(stream, columns=_COLUMNS)
        _count(survey, table)
        _offer(survey, _smallest_ids(table), shard.split, shard.path)
        for row in table.filter(pc.is_in(table["id"], wanted)).to_pylist():
            survey.by_id[row["id"]] = _candidate(row, shard.split, shard.path)
    return survey


def _count(survey: Survey, table: pa.Table) -> None:
    def column(name: str) -> npt.NDArray[np.float64]:
        values: npt.NDArray[Any] = table[name].to_numpy()
        return np.maximum(values.astype(np.float64), 1.0)

    height, width = column("source_height"), column("source_width")
    survey.short_side.add(np.minimum(height, width))
    # Sizes are those of the file; orientations 5 to 8 (EXIF) lie on their side in it.
    aspect = width / height
    survey.aspect.add(np.where(column("orientation") >= 5, 1 / aspect, aspect))
    survey.source_bytes.add(column("source_bytes"))
    survey.stored_bytes.add(column("stored_bytes"))
    survey.total_source_bytes += int(pc.sum(table["source_bytes"]).as_py() or 0)
    for row in table.group_by("source_format").aggregate([([], "count_all")]).to_pylist():
        name = row["source_format"] or "unknown"
        survey.formats[name] = survey.formats.get(name, 0) + row["count_all"]


def _smallest_ids(table: pa.Table) -> Iterable[dict[str, Any]]:
    """The rows with the smallest ids of each class: a sample that no order of files can sway."""
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
