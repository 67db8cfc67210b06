"""Beam job 2: a planned shard to one TFRecord file and its index, copied from the spool and from shards.

The work is numbered by shard. Of each record the encoded image is fetched from the spool, framed, and
appended; or the stored record from a shard of the earlier version, checked by its checksum, and appended as
it is where nothing of it changes. Nothing is decoded. A worker holds one image at a time, and of its shard
only the index.

The index is renamed into place after the shard, and after both a note of what they are
(``infra.contract.Shard``) goes to the spool; a shard with a note is complete. A later run does not write it
again, unless its bytes are no longer what the note says.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_jobs.copying import NO_SHARDS, RecordCopier, ShardsToCopyFrom
from beam_jobs.memory import give_back
from beam_jobs.plan import PLAN_SCHEMA, PlannedShard
from beam_jobs.plan.columns import PLAN_ROWS
from beam_jobs.plan.shards import Assembly
from beam_jobs.shard_index import HashedWriter, ShardIndex
from beam_jobs.spools import plan_file
from infra.contract import Shard, data_dir, index_file, shard_file, shard_stem
from infra.digests import stream_sha256
from infra.errors import NotFoundError, StorageError
from infra.records import Container
from infra.storage import Storage

NOTES_FOLDER = "shards"

# A plan as it lies in the spool: with the length of what is copied of each record.
SPOOLED_PLAN_SCHEMA = PLAN_SCHEMA.append(pa.field("length_bytes", pa.int64()))

_ROWS_AT_A_TIME = 1024


@dataclass(frozen=True)
class AssembleTask:
    """What all shards of a plan have in common.

    Attributes:
        spool: where the encoded blocks are, and the plan.
        dataset: the dataset's folder, where the shards go.
        plan_digest: names their folder in it.
        shards: of the plan; a shard's number is its place here.
        block_digests: of each block, by its number.
        classes: names, by label.
        channels: of the stored images.
        container: of the shards.
        earlier: shards that records are copied from.
    """

    spool: Storage
    dataset: Storage
    plan_digest: str
    shards: Sequence[PlannedShard]
    block_digests: Sequence[str]
    classes: Sequence[str]
    channels: int
    container: Container
    earlier: ShardsToCopyFrom = NO_SHARDS

    def shard_path(self, number: int) -> str:
        """Path of a shard relative to the dataset."""
        shard = self.shards[number]
        name = shard_file(shard.split, shard.index, shard.count, self.container)
        return f"{data_dir(self.plan_digest)}/{name}"

    def index_path(self, number: int) -> str:
        """Path of a shard's index relative to the dataset."""
        shard = self.shards[number]
        return f"{data_dir(self.plan_digest)}/{index_file(shard.split, shard.index, shard.count)}"

    def note_path(self, number: int) -> str:
        """Path of the note of a complete shard, relative to the spool."""
        shard = self.shards[number]
        return f"{NOTES_FOLDER}/{self.plan_digest}/{shard_stem(shard.split, shard.index, shard.count)}.json"


class AssembleShards:
    """Writes shards and their indexes, each by its number. Implements beam_jobs.work.Work."""

    name = "AssembleShards"

    def __init__(self, task: AssembleTask) -> None:
        self._task = task

    def open(self) -> None:
        """Open the plan, and what records are copied from."""
        self._file = self._task.spool.open_input(plan_file(self._task.plan_digest))
        self._records = pa.ipc.open_file(self._file)
        self._copier = RecordCopier(self._task)

    def do(self, number: int) -> None:
        """Write the shard of this number."""
        records = PlannedBatches(self._records, batches_of(self._task.shards, number))
        write_shard(self._task, number, records, self._copier)
        give_back()  # the tables of an index are the largest that a worker ever has

    def close(self) -> None:
        """Close the plan, and what was copied from."""
        self._copier.close()
        self._file.close()


def write_plan(
    spool: Storage,
    plan_digest: str,
    plan: Assembly,
    lengths: Callable[[pa.Table], npt.NDArray[np.int64]],
) -> None:
    """Write the planned records, each shard in record batches of its own, for workers to pick theirs from.

    Args:
        lengths: PLAN_SCHEMA to int64 [records], how many bytes are copied of each.
    """
    path = plan_file(plan_digest)
    with spool.atomic_writer(path) as stream, pa.ipc.new_file(stream, SPOOLED_PLAN_SCHEMA) as writer:
        for part in (part for shard in plan.shards for part in _parts(shard)):
            records = plan.records_of(part)
            rows = records.append_column("length_bytes", pa.array(lengths(records), pa.int64()))
            (batch,) = rows.combine_chunks().to_batches()
            writer.write_batch(batch)


def _parts(shard: PlannedShard) -> Iterator[PlannedShard]:
    """A shard in ranges of so many records as are made at a time."""
    for start in range(0, shard.length, PLAN_ROWS):
        yield replace(shard, start=shard.start + start, length=min(PLAN_ROWS, shard.length - start))


def batches_of(shards: Sequence[PlannedShard], number: int) -> range:
    """Numbers of the record batches that hold the records of a shard."""
    counts = [-(-shard.length // PLAN_ROWS) for shard in shards[: number + 1]]
    return range(sum(counts[:-1]), sum(counts))


@dataclass(frozen=True)
class PlannedBatches:
    """The records of a shard in stored order (SPOOLED_PLAN_SCHEMA), read anew by each iteration."""

    file: pa.ipc.RecordBatchFileReader
    numbers: range

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return map(self.file.get_batch, self.numbers)


def write_shard(
    task: AssembleTask, number: int, records: Iterable[pa.RecordBatch], copier: RecordCopier
) -> None:
    """Write a shard, then its index, then the note that both are complete.

    Args:
        task: what all shards have in common.
        number: of the shard.
        records: SPOOLED_PLAN_SCHEMA, in stored order; iterated twice.
        copier: fetches the records.

    Raises:
        CorruptDataError: a record is not whole where it is copied from.
    """
    path, index_path = task.shard_path(number), task.index_path(number)
    with task.dataset.atomic_writer(path) as stream:
        hashed = HashedWriter(stream)
        offsets, lengths = _write_records(records, copier, hashed)
    with task.dataset.atomic_writer(index_path) as stream:
        hashed_index = HashedWriter(stream)
        with ShardIndex(hashed_index, offsets, lengths) as index:
            for batch in records:
                index.add(batch)
    shard = Shard(
        path=path,
        index_path=index_path,
        split=task.shards[number].split,
        num_examples=len(offsets),
        num_bytes=hashed.num_bytes,
        payload_bytes=index.payload_bytes,
        sha256=hashed.hexdigest(),
        index_bytes=hashed_index.num_bytes,
        index_sha256=hashed_index.hexdigest(),
        class_counts={task.classes[label]: index.labels[label] for label in sorted(index.labels)},
    )
    task.spool.write_atomic(task.note_path(number), shard.model_dump_json().encode())


def _write_records(
    records: Iterable[pa.RecordBatch], copier: RecordCopier, out: HashedWriter
) -> tuple[array[int], array[int]]:
    """Write all records of a shard; returns the offset and the length of each (bytes)."""
    offsets, lengths = array("q"), array("q")
    for record_id, label, block, offset, length, height, width in _rows(records):
        packed = copier.packed(record_id, label, (block, offset, length), (height, width))
        offsets.append(out.num_bytes)
        lengths.append(len(packed))
        out.write(packed)
    return offsets, lengths


def _rows(records: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """What is needed to write each record, as Python values, a few at a time."""
    names = ["id", "label", "block", "offset_bytes", "length_bytes", "height", "width"]
    for batch in records:
        for start in range(0, batch.num_rows, _ROWS_AT_A_TIME):
            part = batch.slice(start, _ROWS_AT_A_TIME)
            yield from zip(*(part.column(name).to_pylist() for name in names), strict=True)


def reuse_shards(task: AssembleTask, published: Iterable[Shard] = ()) -> dict[int, Shard]:
    """Number -> shard, of those that need not be written: they are there, byte for byte, as once written.

    From here on these have a note, and no others.

    Args:
        task: what all shards have in common.
        published: shards that the same plan wrote for earlier versions.
    """
    known = {shard.path: shard for shard in published}
    noted = finished_shards(task)
    reused = {}
    for number in range(len(task.shards)):
        shard = noted.get(number) or known.get(task.shard_path(number))
        if shard is None or not _is_as_written(task.dataset, shard):
            task.spool.delete(task.note_path(number))
            continue
        if number not in noted:
            task.spool.write_atomic(task.note_path(number), shard.model_dump_json().encode())
        reused[number] = shard
    return reused


def finished_shards(task: AssembleTask) -> dict[int, Shard]:
    """Number -> shard, of the shards that have a note, and files of the sizes that it says."""
    prefix = f"{NOTES_FOLDER}/{task.plan_digest}"
    notes = {entry.path for entry in task.spool.list_files(prefix, recursive=False)}
    sizes = {entry.path: entry.size_bytes for entry in task.dataset.list_files(data_dir(task.plan_digest))}
    finished = {}
    for number in range(len(task.shards)):
        if task.note_path(number) in notes:
            shard = Shard.model_validate_json(task.spool.read_bytes(task.note_path(number)))
            if (sizes.get(shard.path), sizes.get(shard.index_path)) == (shard.num_bytes, shard.index_bytes):
                finished[number] = shard
    return finished


def _is_as_written(dataset: Storage, shard: Shard) -> bool:
    expected = {shard.path: shard.sha256, shard.index_path: shard.index_sha256}
    try:
        for path, sha256 in expected.items():
            with dataset.open_input(path) as stream:
                if stream_sha256(stream) != sha256:
                    return False
    except (NotFoundError, StorageError, OSError):
        return False  # gone, or on a bad spot of the disk: written again
    return True
