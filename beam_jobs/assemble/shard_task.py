"""Beam job 2: write each planned shard as one TFRecord file and its index.

The work is numbered by shard. A new image is fetched from the spool, framed and appended. A record of the
previous version is checked and, if unchanged, appended as it is. Nothing is decoded. A worker holds one image
at a time, and the index of its shard.

The index is renamed into place after the shard. Once both files are in place, a note with their sizes and
hashes (``shardmill.infra.format.contract.Shard``) is written to the spool. A shard with a note is complete. A
later run does not write it again, unless the bytes of its files differ from the note.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate, repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.assemble.copying import NOTES_FOLDER, RecordCopier, RecordToCopy, ShardsToWrite
from shardmill.beam_jobs.assemble.shard_index import HashedWriter, ShardIndex
from shardmill.beam_jobs.execution.task import Task
from shardmill.beam_jobs.plan import PlannedShard
from shardmill.beam_jobs.plan.columns import PLAN_ROWS
from shardmill.beam_jobs.plan.shards import Assembly
from shardmill.beam_jobs.schemas import SPOOLED_PLAN_SCHEMA
from shardmill.beam_jobs.spool import plan_file
from shardmill.beam_jobs.tables import release_memory
from shardmill.beam_jobs.tables.features import PREFIX, features_of, with_features
from shardmill.infra.digests import stream_sha256
from shardmill.infra.errors import NotFoundError, StorageError
from shardmill.infra.format.contract import Shard
from shardmill.infra.format.features import Feature, FeatureValues, feature_values, features_in
from shardmill.infra.format.layout import data_dir
from shardmill.infra.storage.filesystem import Storage

_ROWS_AT_A_TIME = 1024


class AssembleShards(Task):
    """Writes shards and their indexes, each by its number."""

    name = "AssembleShards"

    def __init__(self, job: ShardsToWrite) -> None:
        self._job = job

    @property
    def place(self) -> str:
        """Return the URI of the spool."""
        return self._job.spool.uri

    def open(self) -> None:
        """Open the plan, and the files that records are copied from."""
        self._file = self._job.spool.open_input(plan_file(self._job.plan_digest))
        self._records = pa.ipc.open_file(self._file)
        self._batches = first_batches(self._job.shards)
        self._copier = RecordCopier(self._job)

    def do(self, shard: int) -> None:
        """Write a shard, unless it was finished since the run began.

        A cluster that restarts a job has all of its shards done again.
        """
        if self._job.spool.exists(self._job.note_path(shard)):
            return
        batches = range(self._batches[shard], self._batches[shard + 1])
        records = PlannedBatches(self._records, batches)
        write_shard(self._job, shard, records, self._copier)
        release_memory()  # the tables of an index are the largest that a worker ever has

    def close(self) -> None:
        """Close the plan, and the files that records were copied from."""
        self._copier.close()
        self._file.close()


def write_plan(
    spool: Storage,
    plan_digest: str,
    plan: Assembly,
    lengths: Callable[[pa.Table], npt.NDArray[np.int64]],
) -> None:
    """Write the planned records to the spool, each shard in record batches of its own.

    Args:
        spool: folder of unfinished work of the run.
        plan_digest: names the file.
        plan: the shards and their records.
        lengths: returns the number of bytes to copy for each of some records (PLAN_SCHEMA): int64 [records].
    """
    path = plan_file(plan_digest)
    schema = with_features(SPOOLED_PLAN_SCHEMA, plan.features)
    with spool.atomic_writer(path) as stream, pa.ipc.new_file(stream, schema) as writer:
        for part in (part for shard in plan.shards for part in _parts(shard)):
            records = plan.records_of(part)
            rows = records.append_column("length_bytes", pa.array(lengths(records), pa.int64()))
            (batch,) = rows.select(schema.names).combine_chunks().to_batches()
            writer.write_batch(batch)


def _parts(shard: PlannedShard) -> Iterator[PlannedShard]:
    """Cut a shard into ranges of as many records as are made at a time."""
    for start in range(0, shard.length, PLAN_ROWS):
        yield replace(shard, start=shard.start + start, length=min(PLAN_ROWS, shard.length - start))


def first_batches(shards: Sequence[PlannedShard]) -> list[int]:
    """Return the number of the first record batch of each shard, and that behind the last."""
    return list(accumulate((-(-shard.length // PLAN_ROWS) for shard in shards), initial=0))


@dataclass(frozen=True)
class PlannedBatches:
    """The records of a shard in stored order, read anew by each iteration.

    They are SPOOLED_PLAN_SCHEMA and columns of features.
    """

    file: pa.ipc.RecordBatchFileReader
    numbers: range

    @property
    def features(self) -> list[Feature]:
        """The further features of the records."""
        return features_in(self.file.schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return map(self.file.get_batch, self.numbers)


def write_shard(job: ShardsToWrite, number: int, records: PlannedBatches, copier: RecordCopier) -> None:
    """Write a shard, then its index, then the note that both are complete.

    Args:
        job: settings and places that all shards share.
        number: number of the shard.
        records: records of the shard; iterated twice.
        copier: fetches the records.

    Raises:
        CorruptDataError: a record that is to be copied is damaged.
    """
    path, index_path = job.shard_path(number), job.index_path(number)
    with job.dataset.atomic_writer(path) as stream:
        hashed = HashedWriter(stream)
        offsets, lengths = _write_records(records, copier, hashed)
    with job.dataset.atomic_writer(index_path) as stream:
        hashed_index = HashedWriter(stream)
        with ShardIndex(hashed_index, offsets, lengths, job.classes, records.features) as index:
            for batch in records:
                index.add(batch)
    shard = Shard(
        path=path,
        index_path=index_path,
        split=job.shards[number].split,
        num_examples=len(offsets),
        num_bytes=hashed.num_bytes,
        payload_bytes=index.payload_bytes,
        sha256=hashed.hexdigest(),
        index_bytes=hashed_index.num_bytes,
        index_sha256=hashed_index.hexdigest(),
        class_counts={name: index.class_counts[name] for name in job.classes if name in index.class_counts},
    )
    job.spool.write_atomic(job.note_path(number), shard.model_dump_json().encode())


def _write_records(
    records: Iterable[pa.RecordBatch], copier: RecordCopier, out: HashedWriter
) -> tuple[array[int], array[int]]:
    """Write all records of a shard; return the offset and the length of each (bytes)."""
    offsets, lengths = array("q"), array("q")
    for record in _rows(records):
        packed = copier.packed(record)
        offsets.append(out.num_bytes)
        lengths.append(len(packed))
        out.write(packed)
    return offsets, lengths


def _rows(records: Iterable[pa.RecordBatch]) -> Iterator[RecordToCopy]:
    """Yield the values needed to write each record; a few rows at a time become Python values."""
    names = [field.name for field in fields(RecordToCopy) if field.name != "features"]
    for batch in records:
        for start in range(0, batch.num_rows, _ROWS_AT_A_TIME):
            part = batch.slice(start, _ROWS_AT_A_TIME)
            columns = (part.column(name).to_pylist() for name in names)
            yield from map(RecordToCopy, *columns, _features(part))


def _features(records: pa.RecordBatch) -> Iterable[dict[str, FeatureValues]]:
    """Yield the further features of each record."""
    features = features_of(records)
    if not features:
        return repeat({}, records.num_rows)
    columns = [records.column(PREFIX + feature.name).to_pylist() for feature in features]
    names = [feature.name for feature in features]
    return (
        feature_values(features, dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)
    )


def reuse_shards(job: ShardsToWrite, published: Iterable[Shard] = ()) -> dict[int, Shard]:
    """Return number -> shard of the shards that need not be written: their files have the expected bytes.

    After this call these shards have a note, and no others.

    Args:
        job: settings and places that all shards share.
        published: shards that the same plan wrote for earlier versions.
    """
    known = {shard.path: shard for shard in published}
    noted = finished_shards(job)
    reused = {}
    for number in range(len(job.shards)):
        shard = noted.get(number) or known.get(job.shard_path(number))
        if shard is None or not _is_as_written(job.dataset, shard):
            job.spool.delete(job.note_path(number))
            continue
        if number not in noted:
            job.spool.write_atomic(job.note_path(number), shard.model_dump_json().encode())
        reused[number] = shard
    return reused


def finished_shards(job: ShardsToWrite) -> dict[int, Shard]:
    """Return number -> shard of the shards that have a note, and files of the sizes in the note."""
    prefix = f"{NOTES_FOLDER}/{job.plan_digest}"
    notes = {entry.path for entry in job.spool.list_files(prefix, recursive=False)}
    sizes = {entry.path: entry.size_bytes for entry in job.dataset.list_files(data_dir(job.plan_digest))}
    finished = {}
    for number in range(len(job.shards)):
        if job.note_path(number) in notes:
            shard = Shard.model_validate_json(job.spool.read_bytes(job.note_path(number)))
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
