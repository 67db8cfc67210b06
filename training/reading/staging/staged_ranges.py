"""Bytes of records from staged shards."""

from __future__ import annotations

import copy

from shardmill.training.arrays import Ints
from shardmill.training.order import Order
from shardmill.training.reading.budget import WindowMemory
from shardmill.training.reading.records.split_table import SplitTable
from shardmill.training.reading.staging.staging import Staging


class StagedRanges:
    """Reads each record from the staged copy of its shard (a ``StoredBytes``)."""

    windows = WindowMemory()
    reads_single_records = False

    def __init__(self, table: SplitTable, staging: Staging) -> None:
        self._table = table
        self._staging = staging
        self._steps_per_epoch = 0

    def read(self, ordinal: int) -> bytes:
        """See ``StoredBytes``."""
        return self._staging.read(*self._table.place(ordinal))

    def read_batch(self, ordinals: Ints) -> list[bytes]:
        """See ``StoredBytes``."""
        return [self.read(ordinal) for ordinal in ordinals.tolist()]

    def read_range(self, path: str, offset_bytes: int, length_bytes: int) -> bytes:
        """See ``StoredBytes``."""
        return self._staging.read(path, offset_bytes, length_bytes)

    def discard_damaged(self, ordinal: int) -> bool:
        """See ``StoredBytes``."""
        return self._staging.discard_damaged(self._table.place(ordinal)[0])

    def prefetch(self, order: Order, start: int, stop: int) -> None:
        """See ``StoredBytes``: fetch the shards that these steps need, ahead of use."""
        self._steps_per_epoch = order.steps_per_epoch
        self._staging.prefetch(order, self._table, start, stop)

    def advance(self, epoch: int, step: int) -> None:
        """See ``StoredBytes``."""
        self._staging.advance(self._table.split, epoch * self._steps_per_epoch + step)

    def reopened(self) -> StagedRanges:
        """See ``StoredBytes``."""
        reopened = copy.copy(self)
        reopened._staging = copy.copy(self._staging)
        return reopened

    def close(self) -> None:
        """Do nothing: the staging serves other splits too, and its owner closes it."""
