"""Divide shards into runs of neighbouring records, for reading a split from front to back."""

from __future__ import annotations

import numpy as np

from shardmill.training.arrays import Ints
from shardmill.training.reading.records.split_table import SplitTable

_MOST_RECORDS = 512


def first_ordinals(table: SplitTable) -> Ints:
    """Return the first ordinal of each shard, and the end of the last: int64 [shards + 1]."""
    return np.searchsorted(table.shard, np.arange(len(table.paths) + 1)).astype(np.int64)


def record_runs(table: SplitTable, run_bytes: int) -> Ints:
    """Divide each shard into runs of about ``run_bytes``.

    Returns:
        int64 [runs + 1]: the first ordinal of each run, and behind the last.
    """
    row = np.arange(len(table)) - first_ordinals(table)[table.shard]
    key = np.stack([table.shard.astype(np.int64), table.offset_bytes // run_bytes, row // _MOST_RECORDS])
    begins = np.flatnonzero(np.any(np.diff(key, axis=1, prepend=-1), axis=0)).astype(np.int64)
    return np.append(begins, len(table))
