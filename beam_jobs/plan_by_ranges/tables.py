"""Tables of a plan by ranges, in the spool.

Every table is an Arrow IPC file that is written all at once, so a file that exists is complete. An *exchange*
moves rows from one numbering of ranges to another: each range of the first writes one file with a record
batch for each range of the second, which reads its batch of all files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.execution.task import Task
from shardmill.beam_jobs.plan.columns import PLAN_ROWS
from shardmill.beam_jobs.tables.ids import UInt64
from shardmill.infra.storage.filesystem import Storage

Int64 = npt.NDArray[np.int64]


def range_of(ranks: UInt64, ranges: int) -> Int64:
    """Return the range that each hash belongs to: uint64 [N] to int64 [N], rising with the hash."""
    return ((ranks >> np.uint64(32)) * np.uint64(ranges) >> np.uint64(32)).astype(np.int64)


@dataclass(frozen=True)
class RangeTask(Task):
    """A task whose numbers are ranges. A range is done if its table ``output`` is there.

    Attributes:
        output: name of the tables that are written last.
        received: names of the tables that it reads and no later task does.
        tables: tables of the plan.
    """

    output: ClassVar[str]
    received: ClassVar[tuple[str, ...]] = ()
    tables: PlanTables

    @property
    def place(self) -> str:
        """Return the URI of the spool: jobs of other datasets on a cluster have another one."""
        return self.tables.spool.uri


@dataclass(frozen=True)
class PlanTables:
    """The folder of a plan by ranges. Cheap to make and to pickle.

    Attributes:
        spool: folder of unfinished work of the run.
        folder: relative to the spool; named by a digest of all that the plan depends on.
        ranges: number of ranges.
    """

    spool: Storage
    folder: str
    ranges: int

    def path(self, name: str, number: int) -> str:
        """Return the path of the table of one range, relative to the spool."""
        return f"{self.folder}/{name}/{number:05d}.arrow"

    def is_finished(self, name: str) -> bool:
        """Tell whether the task of this name was done for all ranges."""
        return self.spool.exists(f"{self.folder}/finished/{name}")

    def finish(self, task: RangeTask) -> None:
        """Note that a task was done for all ranges, and remove the tables that no other task reads."""
        self.spool.write_atomic(f"{self.folder}/finished/{task.name}", b"")
        for name in task.received:
            self.spool.delete_tree(f"{self.folder}/{name}")

    def numbers(self, name: str) -> set[int]:
        """Return the ranges whose table is there."""
        found = self.spool.list_files(f"{self.folder}/{name}", recursive=False)
        names = (entry.path.rpartition("/")[2] for entry in found)
        return {int(name.removesuffix(".arrow")) for name in names if name.endswith(".arrow")}

    def write(self, name: str, number: int, table: pa.Table) -> None:
        """Write the table of one range, PLAN_ROWS a batch."""
        table = table.combine_chunks()
        with self._writer(name, number, table.schema) as writer:
            writer.write_table(table, max_chunksize=PLAN_ROWS)

    def read(self, name: str, number: int) -> pa.Table:
        """Read the table of one range, in one chunk."""
        with self.open(name, number) as reader:
            return reader.read_all().combine_chunks()

    def send(self, name: str, source: int, table: pa.Table, targets: Int64) -> None:
        """Write rows for other ranges.

        Args:
            name: name of the exchange.
            source: the range that sends.
            table: rows; they keep their order within a target.
            targets: int64 [rows], the range that each is for.
        """
        order = np.argsort(targets, kind="stable")
        table = table.take(pa.array(order)).combine_chunks()
        bounds = np.searchsorted(targets[order], np.arange(self.ranges + 1))
        with self._writer(name, source, table.schema) as writer:
            for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
                writer.write_batch(_one_batch(table.slice(start, stop - start)))

    def receive(self, name: str, target: int) -> pa.Table:
        """Read the rows for a range, those of the first source first, with a column ``source``: int32."""
        parts = []
        for source in range(self.ranges):
            with self.open(name, source) as reader:
                part = pa.Table.from_batches([reader.get_batch(target)])
            numbers = pa.array(np.full(part.num_rows, source, np.int32))
            parts.append(part.append_column("source", numbers))
        return pa.concat_tables(parts).combine_chunks()

    @contextmanager
    def open(self, name: str, number: int) -> Iterator[pa.ipc.RecordBatchFileReader]:
        """Open the table of one range; on a local disk it is mapped, and loaded as used."""
        path = self.path(name, number)
        local = self.spool.local_path(path)
        stream = self.spool.open_input(path) if local is None else pa.memory_map(str(local))
        with stream, pa.ipc.open_file(stream) as reader:
            yield reader

    @contextmanager
    def _writer(self, name: str, number: int, schema: pa.Schema) -> Iterator[pa.ipc.RecordBatchFileWriter]:
        with (
            self.spool.atomic_writer(self.path(name, number)) as stream,
            pa.ipc.new_file(stream, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer,
        ):
            yield writer


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


@dataclass(frozen=True)
class RowsOnStorage:
    """The rows of the tables of all ranges, one after the other.

    Attributes:
        tables: where they are.
        name: name of the tables.
        lengths: number of rows of each.
        schema: columns and types of the rows.
    """

    tables: PlanTables
    name: str
    lengths: tuple[int, ...]
    schema: pa.Schema

    def __len__(self) -> int:
        return sum(self.lengths)

    def table(self, start: int = 0, length: int | None = None) -> pa.Table:
        """Return the rows [start, start + length), or all from ``start`` on."""
        stop = len(self) if length is None else min(start + length, len(self))
        parts = [self.schema.empty_table()]
        first = 0
        for number, rows in enumerate(self.lengths):
            low, high = max(start - first, 0), min(stop - first, rows)
            if low < high:
                parts.append(self._rows(number, low, high))
            first += rows
        rows = pa.concat_tables(parts).combine_chunks()
        # Taken row by row, so that no bit of a neighbouring row is left in a buffer, and in a digest.
        return rows.take(pa.array(np.arange(rows.num_rows)))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows, PLAN_ROWS at a time, however the ranges are cut."""
        for start in range(0, len(self), PLAN_ROWS):
            yield from self.table(start, PLAN_ROWS).combine_chunks().to_batches()

    def column(self, name: str) -> Iterator[pa.Array]:
        """Yield one column, PLAN_ROWS at a time at most."""
        for number in range(self.tables.ranges):
            with self.tables.open(self.name, number) as reader:
                for at in range(reader.num_record_batches):
                    yield reader.get_batch(at).column(name)

    def _rows(self, number: int, low: int, high: int) -> pa.Table:
        with self.tables.open(self.name, number) as reader:
            batches = [reader.get_batch(at) for at in range(low // PLAN_ROWS, -(-high // PLAN_ROWS))]
        return pa.Table.from_batches(batches).slice(low % PLAN_ROWS, high - low)
