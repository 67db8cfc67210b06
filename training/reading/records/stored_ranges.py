"""Bytes of records by ranged reads from the dataset's storage."""

from __future__ import annotations

import copy

from shardmill.infra.storage.range_reader import RangeReader
from shardmill.training.arrays import Ints
from shardmill.training.order import Order
from shardmill.training.reading.budget import WindowMemory
from shardmill.training.reading.records.split_table import SplitTable


class StoredRanges:
    """Reads each record by itself from the dataset's storage (a ``StoredBytes``)."""

    windows = WindowMemory()
    reads_single_records = True

    def __init__(self, table: SplitTable, ranges: RangeReader) -> None:
        self._table = table
        self._ranges = ranges

    def read(self, ordinal: int) -> bytes:
        """See ``StoredBytes``."""
        return self._ranges.read(*self._table.place(ordinal))

    def read_batch(self, ordinals: Ints) -> list[bytes]:
        """See ``StoredBytes``."""
        return [self.read(ordinal) for ordinal in ordinals.tolist()]

    def read_range(self, path: str, offset_bytes: int, length_bytes: int) -> bytes:
        """See ``StoredBytes``."""
        return self._ranges.read(path, offset_bytes, length_bytes)

    def discard_damaged(self, ordinal: int) -> bool:
        """See ``StoredBytes``: there is no copy."""
        return False

    def prefetch(self, order: Order, start: int, stop: int) -> None:
        """Do nothing: records are read when they are needed."""

    def advance(self, epoch: int, step: int) -> None:
        """Do nothing: records are read when they are needed."""

    def reopened(self) -> StoredRanges:
        """See ``StoredBytes``."""
        return StoredRanges(self._table, copy.copy(self._ranges))

    def close(self) -> None:
        """See ``StoredBytes``."""
        self._ranges.close()
