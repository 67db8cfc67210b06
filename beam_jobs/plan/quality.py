"""Limits of the quality flags of a version, and the files that ``filter.quality`` leaves out.

The limits follow from all files with a stored image, duplicates among them, before any is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.schemas import PLAN, Status
from shardmill.beam_jobs.tables.columns import one_chunk
from shardmill.infra.format.contract import QualityLimits
from shardmill.infra.format.quality import (
    QUALITY_COLUMNS,
    ROWS_AT_A_TIME,
    QualityCounts,
    beyond,
    measures_of,
)

_STORED = (Status.STORED, Status.STORED_BEFORE)


def count_quality(facts: pa.Table) -> QualityCounts:
    """Count the measures of the files with a stored image; ``facts`` have the columns of FACTS_SCHEMA."""
    counts = QualityCounts()
    is_stored = np.isin(facts["status"].to_numpy(), _STORED)
    counts.add(facts.select(QUALITY_COLUMNS).filter(pa.array(is_stored)))
    return counts


def without_flagged(facts: pa.Table, limits: Mapping[str, QualityLimits], flags: Sequence[str]) -> pa.Table:
    """Filter the files that have one of some flags; their reason is the first of these.

    Args:
        facts: FACTS_SCHEMA and more.
        limits: of all flags of the version.
        flags: names of flags; those without limits are ignored.
    """
    reasons: dict[int, tuple[str, str]] = {}  # row -> flag and message
    for start in range(0, facts.num_rows if flags else 0, ROWS_AT_A_TIME):
        part = facts.slice(start, ROWS_AT_A_TIME)
        is_stored = np.isin(part["status"].to_numpy(), _STORED)
        measures = measures_of(part)
        for name in flags:
            if (each := limits.get(name)) is not None:
                values = measures[each.measure]
                for row in np.flatnonzero(beyond(values, each) & is_stored).tolist():
                    reasons.setdefault(start + row, (name, _message(values[row], each)))
    if not reasons:
        return facts
    rows = sorted(reasons)
    mask = np.zeros(facts.num_rows, np.bool_)
    mask[rows] = True
    flag, message = zip(*(reasons[row] for row in rows), strict=True)
    states = [Status.FILTERED.value] * len(rows)
    new = {"status": states, "stage": [PLAN] * len(rows), "reason": flag, "message": message}
    for name, texts in new.items():
        at = facts.schema.get_field_index(name)
        field = facts.schema.field(at)
        column = pc.replace_with_mask(one_chunk(facts[name]), pa.array(mask), pa.array(texts, field.type))
        facts = facts.set_column(at, field, column)
    return facts


def _message(value: float, limits: QualityLimits) -> str:
    low = limits.below is not None and value < limits.below
    bound = f"below {limits.below:g}" if low else f"above {limits.above:g}"
    return f"{limits.measure} is {value:.6g}, {bound}"
