"""Quality flags of a version, and the records that have each most clearly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.contract import QualityLimits
from shardmill.infra.format.known_features import QUALITY_FLAGS
from shardmill.infra.format.quality import QUALITY_COLUMNS, Float64, measures_of

EXAMPLES = 6


@dataclass(frozen=True, slots=True, order=True)
class FlaggedRecord:
    """A record with a flag: by how many times it is beyond the limit, its measure, and its place."""

    times: float
    record_id: str
    uri: str
    split: str
    value: float


@dataclass(slots=True)
class FlagFigures:
    """A flag: what its pictures are, its limits, and the records furthest beyond them."""

    name: str
    words: str
    limits: QualityLimits
    worst: list[FlaggedRecord] = field(default_factory=list)


def quality_figures(version: DatasetVersion) -> list[FlagFigures]:
    """Read the indexes once, if any record is flagged."""
    words = {str(name): text for name, text in QUALITY_FLAGS.items()}
    limits = version.manifest.quality
    flags = [FlagFigures(name, words.get(name, ""), each) for name, each in limits.items()]
    found = [flag for flag in flags if flag.limits.num_records]
    if not found:
        return flags
    for batch in version.scan(["id", "source_uri", "split", *QUALITY_COLUMNS]).to_batches():
        measures = measures_of(batch)
        for flag in found:
            times = _times(measures[flag.limits.measure], flag.limits)
            told = (
                FlaggedRecord(
                    float(times[row]),
                    record_id=batch["id"][row].as_py(),
                    uri=batch["source_uri"][row].as_py(),
                    split=batch["split"][row].as_py(),
                    value=float(measures[flag.limits.measure][row]),
                )
                for row in np.argsort(-times, kind="stable")[:EXAMPLES].tolist()
                if times[row] > 1
            )
            flag.worst = sorted([*flag.worst, *told], key=lambda one: (-one.times, one.record_id))[:EXAMPLES]
    return flags


def _times(values: Float64, limits: QualityLimits) -> Float64:
    """Return by how many times values are beyond their limits: float64 [N], at most 1 within; 0 for none."""
    low, high = limits.below, limits.above
    with np.errstate(divide="ignore", invalid="ignore"):
        below = np.zeros(len(values)) if low is None else low / values
        above = np.zeros(len(values)) if high is None else values / high
    return np.nan_to_num(np.maximum(below, above), nan=0.0)


def record_ids(flags: list[FlagFigures]) -> Iterator[str]:
    """Yield the ids of all records that are shown, one of each flag at a time."""
    for place in range(EXAMPLES):
        yield from (flag.worst[place].record_id for flag in flags if place < len(flag.worst))
