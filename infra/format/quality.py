"""Quality flags: which pictures of a version are dark, light, blurred and so on.

A flag is a function of columns of the index and of limits that the manifest has (``QualityLimits``), so it
can be told of every record at any time. The limits follow from the pictures of the version: where each of
them looks like that, none is flagged for it.

A measure is turned so that low values are bad. With the upper median m of all pictures with a stored image,
and their lower quartile q, the limit is

    max(always, min(most, ⅔·m, max(sure, m - 3·(m - q))))

(m·(q ÷ m)³ for measures of ratios). So a picture below ``sure`` is flagged, and none above ``most``, unless
the usual picture is like that; and one below ``always`` in any case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.infra.format.contract import QualityLimits
from shardmill.infra.format.known_features import QualityFlag

Float64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Limits = Mapping[str, QualityLimits]

# Columns of the index that flags need.
QUALITY_COLUMNS: Final = (
    "luma_p5", "luma_p99", "luma_entropy", "luma_sharpness", "border_share", "source_height", "source_width",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a measure beyond which a picture is flagged.

    Attributes:
        measure: name in ``MEASURES``.
        sure, most, always: see above, turned so that low values are bad.
        turn: turns a value so that low is bad, and back; None if low is bad.
        of_ratios: whether quotients of the measure mean something, not differences.
        share: what takes the place of ⅔.
    """

    measure: str
    sure: float
    most: float
    always: float
    turn: Callable[[Float64], Float64] | None = None
    of_ratios: bool = False
    share: float = 2 / 3

    def turned(self, values: Float64) -> Float64:
        """Turn values so that low is bad, or back."""
        return values if self.turn is None else self.turn(values)

    def limit(self, counts: Counter[float]) -> float:
        """Return the limit, of the measure itself, from the number of pictures with each value."""
        values = np.array(list(counts), np.float64)
        turned = self.turned(values)
        order = np.argsort(turned)
        ends = np.cumsum(np.array(list(counts.values()), np.int64)[order])
        quartile, median = turned[order][np.searchsorted(ends, [ends[-1] // 4, ends[-1] // 2], side="right")]
        fence = median * (quartile / median) ** 3 if self.of_ratios and median else 3 * quartile - 2 * median
        found = max(self.always, min(self.most, self.share * median, max(self.sure, fence)))
        return round(float(self.turned(np.array([found]))[0]), 3)


def _from_white(values: Float64) -> Float64:
    return 255 - values


def _from_whole(values: Float64) -> Float64:
    return 1 - values


def _inverse(values: Float64) -> Float64:
    return 1 / values


_ANY = float("inf")
BOUNDS: Final[dict[QualityFlag, tuple[Bound, ...]]] = {
    "dark": (Bound("luma_p99", 80, 100, 32),),
    "light": (Bound("luma_p5", 12, 25, 4, _from_white),),
    "blurred": (Bound("luma_sharpness", 0.36, 0.42, 0, of_ratios=True),),
    "low_information": (Bound("luma_entropy", 3, 4, 1),),
    "uniform": (Bound("luma_range", 8, 8, 8),),
    "border": (Bound("border_share", 0.97, 0.97, 0.97, _from_whole),),
    "odd_aspect": (Bound("aspect", 0.35, 0.5, 0.1, of_ratios=True),),
    "odd_size": (
        Bound("side", 0, _ANY, 16, of_ratios=True, share=0.5),
        Bound("side", 0, _ANY, 0, _inverse, of_ratios=True, share=0.5),
    ),
}

# Measures that are no column themselves, and what they are.
DERIVED: Final = {
    "luma_range": "`luma_p99` − `luma_p5`",
    "aspect": "shorter ÷ longer side of the source",
    "side": "√(width · height) of the source, in whole pixels",
}


ROWS_AT_A_TIME: Final = 1 << 18  # measures take 64 bytes a row


def measures_of(table: pa.Table | pa.RecordBatch) -> dict[str, Float64]:
    """Return the measures of pictures: name -> float64 [N], NaN where a picture has none.

    Args:
        table: QUALITY_COLUMNS; of tables of earlier releases those that they have.
    """
    nothing = np.full(table.num_rows, np.nan)
    found = {
        name: table[name].cast(pa.float64()).to_numpy(zero_copy_only=False)
        if name in table.schema.names
        else nothing
        for name in QUALITY_COLUMNS
    }
    height, width = found.pop("source_height"), found.pop("source_width")
    found["luma_range"] = found["luma_p99"] - found["luma_p5"]
    found["aspect"] = np.minimum(height, width) / np.maximum(height, width)
    found["side"] = np.rint(np.sqrt(height * width))
    return found


class QualityCounts:
    """The numbers of pictures with each value of each measure; sums of parts are those of the whole."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[float]] = {}

    def add(self, table: pa.Table) -> None:
        """Add pictures: QUALITY_COLUMNS."""
        for start in range(0, table.num_rows, ROWS_AT_A_TIME):
            for name, values in measures_of(table.slice(start, ROWS_AT_A_TIME)).items():
                distinct, counts = np.unique(values[~np.isnan(values)], return_counts=True)
                known = dict(zip(distinct.tolist(), counts.tolist(), strict=True))
                self._counts.setdefault(name, Counter()).update(known)

    def to_table(self) -> pa.Table:
        """Return a row for each value: measure, value and count."""
        rows = [(name, *one) for name, counts in self._counts.items() for one in counts.items()]
        names = {"measure": pa.string(), "value": pa.float64(), "count": pa.int64()}
        columns = zip(*rows, strict=True) if rows else ([], [], [])
        return pa.table(
            {
                name: pa.array(column, kind)
                for (name, kind), column in zip(names.items(), columns, strict=True)
            }
        )

    def add_table(self, table: pa.Table) -> None:
        """Add what another has returned with ``to_table``."""
        columns = (table[name].to_pylist() for name in ("measure", "value", "count"))
        for name, value, count in zip(*columns, strict=True):
            self._counts.setdefault(name, Counter())[value] += count

    def limits(self) -> dict[str, QualityLimits]:
        """Return the limits of each flag whose measure some picture has; the counts of records are 0."""
        found: dict[str, QualityLimits] = {}
        for name, bounds in BOUNDS.items():
            measure = bounds[0].measure
            if counts := self._counts.get(measure):
                ends = {"below" if one.turn is None else "above": one.limit(counts) for one in bounds}
                found[name] = QualityLimits(measure=measure, **ends)
        return found


def flagged(table: pa.Table, limits: Limits) -> dict[str, Mask]:
    """Return which pictures have each flag: name -> bool [N].

    Args:
        table: QUALITY_COLUMNS.
        limits: of the version.
    """
    measures = measures_of(table)
    return {name: beyond(measures[each.measure], each) for name, each in limits.items()}


def beyond(values: Float64, limits: QualityLimits) -> Mask:
    """Return which values of a measure are beyond its limits: bool [N]."""
    low, high = limits.below, limits.above
    bad = np.zeros(len(values), np.bool_)
    if low is not None:
        bad |= values < low
    if high is not None:
        bad |= values > high
    return bad


def with_counts(limits: Limits, tables: Iterable[pa.Table]) -> dict[str, QualityLimits]:
    """Return the limits with the numbers of records beyond them; ``tables`` have QUALITY_COLUMNS of all."""
    counts = dict.fromkeys(limits, 0)
    for table in tables:
        for start in range(0, table.num_rows, ROWS_AT_A_TIME):
            for name, bad in flagged(table.slice(start, ROWS_AT_A_TIME), limits).items():
                counts[name] += int(bad.sum())
    return {name: each.model_copy(update={"num_records": counts[name]}) for name, each in limits.items()}
