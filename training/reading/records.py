"""Records of a split by ordinal, straight from its shards. Knows no framework.

Reading a record costs one ``pread``, for gzip one inflate, and the check of its checksum. Nothing is returned
that is not what was written: each record is checked against its index.
"""

from __future__ import annotations

import copy

import numpy as np
import numpy.typing as npt

from infra.catalog import DatasetVersion
from infra.errors import CorruptDataError, NotFoundError, ShardmillError
from infra.examples import ImageRecord, parse_example
from infra.ranges import RangeReader
from infra.records import unpack_record
from training.reading.table import SplitTable


class RecordReader:
    """Reads records of one split; safe for many threads."""

    def __init__(self, version: DatasetVersion, table: SplitTable) -> None:
        self.table = table
        self.image_encoding: str = version.manifest.image_encoding
        self._container = version.manifest.container
        self._ref = version.ref
        self._ranges = RangeReader(version.storage)

    def read(self, ordinal: int) -> ImageRecord:
        """The record with this number.

        Raises:
            CorruptDataError: names the shard and the record.
        """
        path = self.table.paths[self.table.shard[ordinal]]
        offset, length = int(self.table.offset_bytes[ordinal]), int(self.table.length_bytes[ordinal])
        try:
            return self._record(ordinal, self._ranges.read(path, offset, length))
        except (CorruptDataError, NotFoundError) as error:
            raise self.named(ordinal, error) from error

    def read_run(self, first: int, stop: int) -> list[ImageRecord]:
        """The records ``first`` to ``stop - 1`` of one shard, by one read.

        Raises:
            CorruptDataError: names the shard and the record.
        """
        offsets = self.table.offset_bytes[first:stop].tolist()
        lengths = self.table.length_bytes[first:stop].tolist()
        path, begin = self.table.paths[self.table.shard[first]], offsets[0]
        records, ordinal = [], first
        try:
            stored = memoryview(self._ranges.read(path, begin, offsets[-1] + lengths[-1] - begin))
            for ordinal, offset, length in zip(range(first, stop), offsets, lengths, strict=True):
                records.append(self._record(ordinal, stored[offset - begin : offset - begin + length]))
        except (CorruptDataError, NotFoundError) as error:
            raise self.named(ordinal, error) from error
        return records

    def _record(self, ordinal: int, stored: bytes | memoryview) -> ImageRecord:
        length = int(self.table.length_bytes[ordinal])
        if len(stored) != length:
            raise CorruptDataError(f"the shard ends after {len(stored)} of {length} bytes")
        record = parse_example(unpack_record(stored, self._container))
        self._check(ordinal, record)
        return record

    def named(self, ordinal: int, error: ShardmillError) -> CorruptDataError:
        """``error`` as one that names the record, its place and the remedy."""
        table = self.table
        return CorruptDataError(
            f"record {table.id[ordinal].decode('ascii')} at byte {table.offset_bytes[ordinal]} "
            f"of {table.paths[table.shard[ordinal]]}: {error.message}",
            f"run `shardmill verify {self._ref}`; a damaged shard must be restored or prepared again",
        )

    def read_many(self, ordinals: npt.NDArray[np.int64]) -> list[ImageRecord]:
        """The records with these numbers, in this order."""
        return [self.read(ordinal) for ordinal in ordinals.tolist()]

    def _check(self, ordinal: int, record: ImageRecord) -> None:
        table = self.table
        found = (record.id.encode("ascii"), record.label, record.height, record.width)
        wanted = (table.id[ordinal], table.label[ordinal], table.height[ordinal], table.width[ordinal])
        if found != wanted:
            raise CorruptDataError(f"(id, label, height, width) is {found}, the index says {wanted}")

    def reopened(self) -> RecordReader:
        """The same records through files of its own: for a process that was forked from this one."""
        own = copy.copy(self)
        own._ranges = copy.copy(self._ranges)
        return own

    def close(self) -> None:
        """Let go of all open files."""
        self._ranges.close()
