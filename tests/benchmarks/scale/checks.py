"""Check a plan of synthetic references: outcomes, groups, splits and shards, row by row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.plan import AnyPlan
from shardmill.beam_jobs.tables.ids import hex_bytes, record_ids
from shardmill.infra.format.contract import DUPLICATE, FILTERED, OUTCOMES, QUARANTINED, RECORD, SPLITS
from tests.benchmarks.scale.references import (
    CLASSES,
    FAR,
    KEYED,
    REPEATS,
    References,
    is_broken,
    is_filtered,
    is_given,
    is_keyed,
    is_repeat,
)

ROWS = 1_000_000
Int64 = npt.NDArray[np.int64]

# A unit of several records may put so many too many of a class in a split.
LARGEST_UNIT = 4


def check_plan(plan: AnyPlan, references: References) -> dict[str, Any]:
    """Check a plan.

    Returns:
        records: number of them. split_error, class_error: largest difference from the fractions, in records.

    Raises:
        AssertionError: the plan is wrong.
    """
    inputs = _Inputs(references)
    for start in range(0, references.count, ROWS):
        inputs.add(plan.input_rows.table(start, ROWS), start)
    assert len(plan.input_rows) == references.count
    inputs.check_counts()
    records = _check_records(plan, references, inputs.in_splits)
    assert records == inputs.ids, "the planned records are not the records among the inputs"
    return {"records": records[0], **_check_splits(inputs)}


@dataclass
class _Inputs:
    """What the rows of the inputs said so far.

    Attributes:
        outcomes: outcome -> number of inputs.
        in_splits: int64 [classes, splits], records.
        given: int64 [classes], records whose split the source gives.
        group_splits: int8 [groups], the split of each group by key; -1 if it was not seen yet.
        ids: number of the records, sum and exclusive or of their ids.
    """

    references: References
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    in_splits: Int64 = field(default_factory=lambda: np.zeros((CLASSES, len(SPLITS)), np.int64))
    given: Int64 = field(default_factory=lambda: np.zeros(CLASSES, np.int64))
    ids: tuple[int, int, int] = (0, 0, 0)

    def __post_init__(self) -> None:
        self.group_splits = np.full(self.references.count // KEYED, -1, np.int8)

    def add(self, rows: pa.Table, start: int) -> None:
        """Check rows from ``start`` on."""
        at = np.arange(start, start + rows.num_rows)
        listing = self.references.listing(start, start + rows.num_rows)
        for name in ("uri", "size_bytes", "mtime_ns", "label", "group"):
            assert rows[name].equals(listing[name]), f"{name} of the rows from {start} on"
        outcomes = pc.index_in(rows["outcome"], pa.array(OUTCOMES)).to_numpy()
        for code, outcome in enumerate(OUTCOMES):
            self.outcomes[outcome] += int((outcomes == code).sum())
        lost = np.where(is_filtered(at), FILTERED, QUARANTINED)
        is_lost = is_filtered(at) | is_broken(at)
        assert (np.array(OUTCOMES)[outcomes[is_lost]] == lost[is_lost]).all()
        splits = pc.fill_null(pc.index_in(rows["split"], pa.array(SPLITS)), -1).to_numpy()
        assert (splits[~is_lost] >= 0).all(), "every image has a split"
        self._check_groups(at, splits)
        is_record = outcomes == OUTCOMES.index(RECORD)
        labels = self.references.labels(at)
        self.in_splits += _cells(labels[is_record], splits[is_record])
        given = is_record & is_given(at)
        assert (splits[given] == SPLITS.index("test")).all()
        self.given += np.bincount(labels[given], minlength=CLASSES)
        self.ids = _sums(self.ids, rows["record_id"].filter(pa.array(is_record)))

    def _check_groups(self, at: Int64, splits: npt.NDArray[np.int32]) -> None:
        """Check that no group, and no image and its repeat in the row behind it, is in two splits."""
        keyed = is_keyed(at)
        groups, found = at[keyed] // KEYED, splits[keyed]
        fresh = self.group_splits[groups] < 0
        self.group_splits[groups[fresh]] = found[fresh]
        assert (self.group_splits[groups] == found).all(), "a group is in two splits"
        repeats = np.flatnonzero(is_repeat(at) & (at % FAR != 7))
        repeats = repeats[repeats > 0]
        assert (splits[repeats] == splits[repeats - 1]).all(), "a repeat has the split of its record"

    def check_counts(self) -> None:
        """Check that each input has one outcome, and as many have each as were made to have it."""
        count = self.references.count
        assert sum(self.outcomes.values()) == count, "every input has one outcome"
        expected = {DUPLICATE: count // REPEATS, FILTERED: count // 2000, QUARANTINED: count // 1000}
        expected[RECORD] = count - sum(expected.values())
        assert self.outcomes == expected, f"{self.outcomes}, not {expected}"
        assert self.ids[0] == expected[RECORD]


def _check_records(plan: AnyPlan, references: References, in_splits: Int64) -> tuple[int, int, int]:
    """Check the shards; return the number of the records, and sums of their ids."""
    starts = np.array([shard.start for shard in plan.shards])
    lengths = np.array([shard.length for shard in plan.shards])
    assert (np.cumsum(lengths) - lengths == starts).all()
    held = np.zeros(len(starts) * CLASSES, np.int32)
    sums = 0, 0, 0
    total = int(lengths.sum())
    classes = np.array([int(name.removeprefix("class_")) for name in plan.classes])
    for start in range(0, total, ROWS):
        rows = plan.planned.table(start, ROWS)
        shards = np.searchsorted(starts, np.arange(start, start + rows.num_rows), side="right") - 1
        cells, counts = np.unique(shards * CLASSES + classes[rows["label"].to_numpy()], return_counts=True)
        held[cells] += counts.astype(np.int32)
        sums = _sums(sums, rows["id"])
    of_shards = held.reshape(len(starts), CLASSES)
    for code, split in enumerate(SPLITS):
        mine = of_shards[[shard.split == split for shard in plan.shards]]
        assert len(mine), f"no shard of {split}"
        assert np.ptp(mine.sum(axis=1)) <= 1, "the shards of a split differ by more than one record"
        assert (np.ptp(mine, axis=0) <= 1).all(), "the shards of a split differ in a class"
        assert (mine.sum(axis=0, dtype=np.int64) == in_splits[:, code]).all()
    return sums


def _check_splits(inputs: _Inputs) -> dict[str, Any]:
    """Check the number of records in each split."""
    own = inputs.in_splits.copy()
    own[:, SPLITS.index("test")] -= inputs.given
    fractions = np.asarray(PrepareConfig().splits.fractions())
    of_class = np.abs(own - own.sum(axis=1, keepdims=True) * fractions).max()
    in_all = np.abs(own.sum(axis=0) - own.sum() * fractions).max()
    assert of_class <= LARGEST_UNIT + 1, f"a class is off by {of_class} records"
    assert in_all <= LARGEST_UNIT + 1, f"a split is off by {in_all} records"
    return {"class_error": float(of_class), "split_error": float(in_all)}


def _cells(labels: Int64, splits: npt.NDArray[np.int32]) -> Int64:
    cells = np.bincount(labels * len(SPLITS) + splits, minlength=CLASSES * len(SPLITS))
    return cells.reshape(CLASSES, len(SPLITS))


def _sums(before: tuple[int, int, int], ids: pa.ChunkedArray) -> tuple[int, int, int]:
    numbers = record_ids(hex_bytes(ids, 8))
    total = (before[1] + int(numbers.sum(dtype=np.uint64))) % (1 << 64)
    return before[0] + len(numbers), total, before[2] ^ int(np.bitwise_xor.reduce(numbers))
