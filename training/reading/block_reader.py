"""Records of an order by block, out of windows that are read ahead: one read a block, not one a record.

Neighbouring records of a shard lie one behind the other in its file, so a block is one range. The reader
holds the window in use and reads the next one meanwhile; records are cut out of them, and checked as always.
What lies in neither (the examples that pad a last step, records out of sequence) is read by itself.

Nothing is read before a record is asked for, so that a cache above this reader spares the windows too.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from infra.catalog import DatasetVersion
from infra.errors import ConfigError, CorruptDataError
from infra.ranges import RangeReader
from infra.record_batch import CheckedImage, check_records
from infra.records import inflate_record
from training.arrays import Ints
from training.order import Order, TrainingOrder
from training.order.blocks import Blocks
from training.reading.block_course import BlockCourse, block_ranges, fits, window_bytes
from training.reading.damage import BadRecords
from training.reading.held_blocks import HeldBlocks
from training.reading.records import RecordReader
from training.reading.staging import Staging
from training.reading.table import SplitTable

# A step that comes so much later than its successors is late, and reads what is no longer held by itself; one
# from further back begins the run anew.
_LATE_STEPS = 64


class BlockReader(RecordReader):
    """Reads the records of one split in the order of its blocks; safe for many threads.

    Attributes:
        window_bytes: most memory that its windows take.
        budget_bytes: what they may take, over all processes that read at a time.
    """

    def __init__(
        self,
        version: DatasetVersion,
        table: SplitTable,
        order: TrainingOrder,
        blocks: Blocks,
        *,
        budget_bytes: int,
        bad: BadRecords | None = None,
    ) -> None:
        """Args:
        version, table, bad: as for ``RecordReader``.
        order: of the run.
        blocks: the same order's.
        budget_bytes: memory that the windows may take.

        Raises:
            ConfigError: they need more.
        """
        super().__init__(version, table, bad=bad)
        self._ranges_of_blocks = block_ranges(blocks, table)
        self.window_bytes = window_bytes(order, blocks, self._ranges_of_blocks[1])
        self.budget_bytes = budget_bytes
        self.check_processes(1)
        self._course = BlockCourse(order, blocks)
        self._start()
        _readers.add(self)

    def _start(self) -> None:
        # Not a method: with a circle of references the windows would outlive the reader.
        read = partial(_read_block, self._ranges, self.table, self._course.blocks, self._ranges_of_blocks)
        self._held = HeldBlocks(read)
        self._lock = threading.Lock()
        self._first = 0
        self._at: int | None = None
        self._stop: int | None = None
        self._advanced_to: int | None = None
        self._windows = range(0)

    # -- where the run is ------------------------------------------------------------------------------

    def follow(self, order: Order, start: int, stop: int) -> None:
        """See ``RecordReader.follow``: nothing is read ahead for steps from ``stop`` on."""
        with self._lock:
            self._at, self._advanced_to, self._stop = None, None, stop

    def reached(self, epoch: int, step: int) -> None:
        """See ``RecordReader.reached``. A step below 0 is none of the order's."""
        if step < 0:
            return
        run_step = epoch * self._course.order.steps_per_epoch + step
        with self._lock:
            if self._at is None or run_step < self._at - _LATE_STEPS:
                self._first = self._at = run_step
            else:
                self._first, self._at = min(self._first, run_step), max(self._at, run_step)

    def _advance(self) -> None:
        """Hold the windows of where the run is."""
        with self._lock:
            if self._at is None or self._at == self._advanced_to:
                return
            windows = self._course.windows(self._first, self._at, self._stop)
            if windows != self._windows:
                self._held.want(block for window in windows for block in self._of_window(window))
            self._windows, self._advanced_to = windows, self._at

    def _of_window(self, window: int) -> list[int]:
        blocks: list[int] = self._course.of_window(window).tolist()
        return blocks

    # -- reading ---------------------------------------------------------------------------------------

    def read_stored(self, ordinal: int) -> bytes:
        """See ``RecordReader.read_stored``."""
        self._advance()
        [found] = self._cut_out(np.array([ordinal]))
        return super().read_stored(ordinal) if found is None else found

    def _cut_out(self, ordinals: npt.NDArray[np.int64]) -> list[bytes | None]:
        """The stored bytes of records; None where their block is not held."""
        blocks = self._course.blocks.of_records(ordinals)
        begins = (self.table.offset_bytes[ordinals] - self._ranges_of_blocks[0][blocks]).tolist()
        lengths = self.table.length_bytes[ordinals].tolist()
        found = [self._held.get(block) for block in blocks.tolist()]
        return [
            None if data is None else data[begin : begin + length]
            for data, begin, length in zip(found, begins, lengths, strict=True)
        ]

    def _checked_at_once(self, ordinals: npt.NDArray[np.int64]) -> Sequence[CheckedImage | None]:
        """What compiled code finds sound."""
        self._advance()
        stored = self._cut_out(ordinals)
        framed = [data for data in stored if data is not None]
        if len(framed) < len(stored):
            return [None] * ordinals.size  # one by one, those of the windows from there
        try:
            if self.container == "gzip":
                framed = [inflate_record(data) for data in framed]
        except CorruptDataError:
            return [None] * ordinals.size  # reading one by one says which, and why
        return check_records(framed, self._promised(ordinals))

    # -- memory ----------------------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """What the windows take now."""
        return self._held.num_bytes

    @property
    def most_processes(self) -> int:
        """How many processes may have windows of their own."""
        return self.budget_bytes // max(self.window_bytes, 1)

    def check_processes(self, num_processes: int) -> None:
        """Raises ConfigError where the budget is too small for so many processes."""
        if num_processes <= self.most_processes:
            return
        readers = f" of {num_processes} processes" if num_processes > 1 else ""
        fewer = "have fewer processes (num_workers), " if num_processes > 1 else ""
        raise ConfigError(
            f"the windows of an order by block{readers} take up to {num_processes * self.window_bytes:,} "
            f"bytes of memory, and may take {self.budget_bytes:,} (reading.ram_budget_bytes)",
            f"{fewer}lower data.window_blocks or data.block_records, or raise reading.ram_budget_bytes; "
            "shards of an object store may be staged instead (reading.staging_dir)",
        )

    # -- upkeep ----------------------------------------------------------------------------------------

    def reopened(self) -> RecordReader:
        """See ``RecordReader.reopened``: with windows of its own."""
        own = super().reopened()
        assert isinstance(own, BlockReader)
        own._start()
        return own

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_held", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()
        _readers.add(self)

    def close(self) -> None:
        """Let go of windows, threads and open files."""
        with self._lock:
            self._at = self._advanced_to = None
            self._windows = range(0)
        self._held.close()
        super().close()


def _read_block(
    ranges: RangeReader | Staging, table: SplitTable, blocks: Blocks, places: tuple[Ints, Ints], block: int
) -> bytes:
    path = table.paths[table.shard[blocks.firsts[block]]]
    offsets, lengths = places
    return ranges.read(path, int(offsets[block]), int(lengths[block]))


_readers: weakref.WeakSet[BlockReader] = weakref.WeakSet()


def _begin_anew_after_fork() -> None:
    # The threads are the parent's: what they were reading would never come.
    for reader in list(_readers):
        reader._start()


os.register_at_fork(after_in_child=_begin_anew_after_fork)


def by_block(version: DatasetVersion, records: RecordReader, order: Order, budget_bytes: int) -> RecordReader:
    """A reader of windows where the order is by block, ``records`` where it is not.

    Staged shards are files of this machine, whose records are read one by one.

    Args:
        version: whose records.
        records: reads them one by one.
        order: of the run.
        budget_bytes: memory that the windows may take.

    Raises:
        ConfigError: they need more.
    """
    if type(records) is not RecordReader or records.is_staged or not isinstance(order, TrainingOrder):
        return records
    blocks = order.blocks
    if blocks is None or not fits(blocks, records.table):
        return records
    return BlockReader(version, records.table, order, blocks, budget_bytes=budget_bytes, bad=records.bad)
