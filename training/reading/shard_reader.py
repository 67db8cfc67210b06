"""Read records from the shards of a split.

Reading a record costs one ``pread``, for gzip one inflate, and the check of its checksum. Each record is
compared with its row of the index, so a record that differs from the one that was written is never
returned.
"""

from __future__ import annotations

import copy
from typing import Protocol

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError, NotFoundError
from shardmill.infra.format.examples import ImageRecord, parse_example
from shardmill.infra.format.records import unpack_record
from shardmill.infra.storage.range_reader import RangeReader
from shardmill.training.arrays import Ints
from shardmill.training.order import Order
from shardmill.training.reading.budget import WindowMemory
from shardmill.training.reading.records.record_reader import RecordReader
from shardmill.training.reading.records.split_records import BadRecords, EncodedImage, SplitRecords
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


class StoredBytes(Protocol):
    """Provides the bytes of records to a ``ShardReader``. Safe for many threads.

    Attributes:
        windows: the memory that bytes read ahead may take.
        reads_single_records: each record is a read of its own from the dataset's storage.
    """

    windows: WindowMemory
    reads_single_records: bool

    def read(self, ordinal: int) -> bytes:
        """Return the stored bytes of a record, unchecked; fewer bytes if the shard ends early.

        Raises:
            NotFoundError: the shard is gone.
        """

    def read_batch(self, ordinals: Ints) -> list[bytes]:
        """Return the stored bytes of several records, unchecked."""

    def read_range(self, path: str, offset_bytes: int, length_bytes: int) -> bytes:
        """Return a range of bytes of a shard; fewer bytes if the shard ends early."""

    def discard_damaged(self, ordinal: int) -> bool:
        """Discard a damaged local copy of a record's shard. Return whether reading again may help."""

    def prefetch(self, order: Order, start: int, stop: int) -> None:
        """Prepare to read the steps ``start`` to ``stop`` (epoch * steps_per_epoch + step) of an order."""

    def advance(self, epoch: int, step: int) -> None:
        """Note that a step is being read. Steps below 0 belong to no order."""

    def reopened(self) -> StoredBytes:
        """Return an object with files, threads and locks of its own, for a forked process."""

    def close(self) -> None:
        """Release open files, threads and memory."""


class ShardReader(RecordReader):
    """Reads and checks records of shards. A ``StoredBytes`` provides the bytes."""

    def __init__(self, split: SplitRecords, stored: StoredBytes) -> None:
        self.split = split
        self.image_encoding = split.image_encoding
        self.stored = stored
        self.windows = stored.windows
        self.reads_single_records = stored.reads_single_records

    def read(self, ordinal: int) -> ImageRecord:
        """Return a record, checked against its checksum and its row of the index."""
        try:
            return self._parsed(ordinal, self.stored.read(ordinal))
        except (CorruptDataError, NotFoundError) as error:
            if self.stored.discard_damaged(ordinal):
                return self.read(ordinal)
            raise self.split.named(ordinal, error) from error

    def read_run(self, first: int, stop: int) -> list[EncodedImage]:
        """Return the stored images of neighbouring records of one shard, by one read."""
        offsets = self.table.offset_bytes[first:stop].tolist()
        lengths = self.table.length_bytes[first:stop].tolist()
        path, begin = self.table.place(first)[0], offsets[0]
        images, ordinal = [], first
        try:
            stored = memoryview(self.stored.read_range(path, begin, offsets[-1] + lengths[-1] - begin))
            for ordinal, offset, length in zip(range(first, stop), offsets, lengths, strict=True):
                record = self._parsed(ordinal, stored[offset - begin : offset - begin + length])
                images.append(EncodedImage(record.image, record.shape, record.mask))
        except (CorruptDataError, NotFoundError) as error:
            raise self.split.named(ordinal, error) from error
        return images

    def read_images(self, ordinals: Ints) -> list[EncodedImage]:
        """Return the stored images of the records ``ordinals`` (int64 [M]), in this order."""
        try:
            stored = self.stored.read_batch(ordinals)
            records = [self._parsed(*each) for each in zip(ordinals.tolist(), stored, strict=True)]
        except (CorruptDataError, NotFoundError):
            records = self.read_many(ordinals)  # finds out which record is damaged, and why
        return [EncodedImage(record.image, record.shape, record.mask) for record in records]

    def _parsed(self, ordinal: int, stored: bytes | memoryview) -> ImageRecord:
        length = int(self.table.length_bytes[ordinal])
        if len(stored) != length:
            raise CorruptDataError(f"the shard ends after {len(stored)} of {length} bytes")
        record = parse_example(unpack_record(stored, self.split.container(ordinal)))
        return self.split.checked(ordinal, record)

    def prefetch(self, order: Order, start: int, stop: int) -> None:
        """Prepare to read the steps ``start`` to ``stop`` of an order."""
        self.stored.prefetch(order, start, stop)

    def advance(self, epoch: int, step: int) -> None:
        """Note that a step is being read."""
        self.stored.advance(epoch, step)

    def reopened(self) -> ShardReader:
        """Return a reader with files and locks of its own, for a forked process."""
        return ShardReader(self.split, self.stored.reopened())

    def close(self) -> None:
        """Release open files, threads and memory."""
        self.stored.close()


def open_records(
    version: DatasetVersion, table: SplitTable, staging: Staging | None = None, bad: BadRecords | None = None
) -> ShardReader:
    """Open the records of a split, in the dataset's storage or through a staging.

    Args:
        version: the dataset version.
        table: the table of the split.
        staging: copies shards of an object store to this machine; None: read from the dataset's
            storage, which costs a request for each record of an object store.
        bad: counts the damaged records that batches leave out; by default none may be left out.
    """
    split = SplitRecords(version, table, BadRecords() if bad is None else bad)
    if staging is not None:
        return ShardReader(split, StagedRanges(table, staging))
    return ShardReader(split, StoredRanges(table, RangeReader(version.storage)))
