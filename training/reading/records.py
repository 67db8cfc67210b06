"""Records of a split by ordinal, straight from its shards. Knows no framework.

Reading a record costs one ``pread``, for gzip one inflate, and the check of its checksum. Nothing is returned
that is not what was written: each record is checked against its index.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from infra.catalog import DatasetVersion
from infra.errors import CorruptDataError, NotFoundError, ShardmillError
from infra.examples import ImageRecord, parse_example
from infra.ranges import RangeReader
from infra.record_batch import CheckedImage, Promised, check_records, is_compiled, read_records
from infra.records import Container, inflate_record, unpack_record
from training.order import Order, StepPlan
from training.reading.damage import BadRecords, restore, without_rows
from training.reading.staging import Staging
from training.reading.table import SplitTable
from training.reading.windows import Pixels, decode_window


class StoredImage(NamedTuple):
    """An encoded image, and its height, width (pixels) and channels."""

    image: bytes | memoryview
    shape: tuple[int, int, int]


class RecordReader:
    """Reads records of one split; safe for many threads.

    Attributes:
        window_bytes: most memory that records read ahead take.
    """

    window_bytes = 0

    def __init__(
        self,
        version: DatasetVersion,
        table: SplitTable,
        staging: Staging | None = None,
        bad: BadRecords | None = None,
    ) -> None:
        """Args:
        version: whose records.
        table: of the split.
        staging: where shards of an object store are copied to; None: they are read where they lie, in an
            object store by a request a record.
        bad: keeps count of damaged records that batches leave out; default: none may be.
        """
        self.table = table
        self.bad = bad or BadRecords()
        self.image_encoding: str = version.manifest.image_encoding
        self.container: Container = version.manifest.container
        self._ref = version.ref
        self._classes = version.manifest.classes
        self._ranges: RangeReader | Staging = staging or RangeReader(version.storage)
        self._steps_per_epoch = 0

    @property
    def is_staged(self) -> bool:
        """Whether shards come to this machine before they are read."""
        return isinstance(self._ranges, Staging)

    def read(self, ordinal: int) -> ImageRecord:
        """The record with this number.

        Raises:
            CorruptDataError: names the shard and the record.
        """
        try:
            return self._record(ordinal, self.read_stored(ordinal))
        except (CorruptDataError, NotFoundError) as error:
            path = self.table.paths[self.table.shard[ordinal]]
            if isinstance(self._ranges, Staging) and self._ranges.is_damaged(path):
                return self.read(ordinal)
            raise self.named(ordinal, error) from error

    def read_stored(self, ordinal: int) -> bytes:
        """The bytes of a record as they lie in its shard, unchecked; fewer where the shard ends.

        Raises:
            NotFoundError: the shard is gone.
        """
        path = self.table.paths[self.table.shard[ordinal]]
        return self._ranges.read(
            path, int(self.table.offset_bytes[ordinal]), int(self.table.length_bytes[ordinal])
        )

    def first_sound(self) -> ImageRecord:
        """The first record that is not damaged.

        Raises:
            CorruptDataError: names the shard and the record, of one that may not be left out.
        """
        for ordinal in range(len(self.table) - 1):
            try:
                return self.read(ordinal)
            except CorruptDataError as error:
                self.leave_out(ordinal, error)
        return self.read(len(self.table) - 1)

    def read_run(self, first: int, stop: int) -> list[StoredImage]:
        """The stored images of the records ``first`` to ``stop - 1`` of one shard, by one read.

        Raises:
            CorruptDataError: names the shard and the record.
        """
        offsets = self.table.offset_bytes[first:stop].tolist()
        lengths = self.table.length_bytes[first:stop].tolist()
        path, begin = self.table.paths[self.table.shard[first]], offsets[0]
        images, ordinal = [], first
        try:
            stored = memoryview(self._ranges.read(path, begin, offsets[-1] + lengths[-1] - begin))
            for ordinal, offset, length in zip(range(first, stop), offsets, lengths, strict=True):
                record = self._record(ordinal, stored[offset - begin : offset - begin + length])
                images.append(StoredImage(record.image, record.shape))
        except (CorruptDataError, NotFoundError) as error:
            raise self.named(ordinal, error) from error
        return images

    def _record(self, ordinal: int, stored: bytes | memoryview) -> ImageRecord:
        length = int(self.table.length_bytes[ordinal])
        if len(stored) != length:
            raise CorruptDataError(f"the shard ends after {len(stored)} of {length} bytes")
        record = parse_example(unpack_record(stored, self.container))
        self._check(ordinal, record)
        return record

    def named(self, ordinal: int, error: ShardmillError) -> CorruptDataError:
        """``error`` as one that names the record, its place and the remedy."""
        table = self.table
        return CorruptDataError(
            f"record {table.id[ordinal].decode('ascii')} at byte {table.offset_bytes[ordinal]} "
            f"of {table.paths[table.shard[ordinal]]}: {error.message}",
            restore(self._ref),
        )

    def read_many(self, ordinals: npt.NDArray[np.int64]) -> list[ImageRecord]:
        """The records with these numbers, in this order."""
        return [self.read(ordinal) for ordinal in ordinals.tolist()]

    def read_plan(self, plan: StepPlan) -> tuple[list[ImageRecord], StepPlan]:
        """The records of a step, and its plan with damaged ones left out, as padding that repeats another.

        Raises:
            CorruptDataError: names the shard and the record, of one that may not be left out; or no record
                of the step is sound.
        """
        records: list[ImageRecord | None] = []
        for ordinal in plan.ordinals.tolist():
            try:
                records.append(self.read(ordinal))
            except CorruptDataError as error:
                self.leave_out(ordinal, error)
                records.append(None)
                last = error
        bad = [row for row, record in enumerate(records) if record is None]
        if bad:
            plan, donor = without_rows(plan, bad)
            if donor is None:
                raise last
            records = [records[donor] if record is None else record for record in records]
        return [record for record in records if record is not None], plan

    def read_images(self, ordinals: npt.NDArray[np.int64]) -> list[StoredImage]:
        """The stored images of the records with these numbers, in this order.

        Their bytes stay until the same thread reads on: decode them first.

        Raises:
            CorruptDataError: names the shard and the record.
        """
        checked = self._checked_at_once(ordinals) if is_compiled() else [None] * ordinals.size
        images = []
        for ordinal, found in zip(ordinals.tolist(), checked, strict=True):
            if found is None:
                record = self.read(ordinal)
                images.append(StoredImage(record.image, record.shape))
            else:
                images.append(self._of_shape(ordinal, found.image, found.channels))
        return images

    def _of_shape(self, ordinal: int, image: bytes | memoryview, channels: int) -> StoredImage:
        """A record's image, with the height and width that the index says."""
        height, width = int(self.table.height[ordinal]), int(self.table.width[ordinal])
        return StoredImage(image, (height, width, channels))

    def _record_of(self, ordinal: int, stored: StoredImage) -> ImageRecord:
        """A record whose image is at hand."""
        label, name = int(self.table.label[ordinal]), self.table.id[ordinal].decode("ascii")
        return ImageRecord(name, bytes(stored.image), label, self._classes[label], *stored.shape)

    def decoded(self, ordinal: int, stored: StoredImage) -> Pixels:
        """The whole image of a record, as this reader gave it: uint8 [H, W, 3].

        Raises:
            CorruptDataError: it cannot be decoded; names the shard and the record.
        """
        height, width, _ = stored.shape
        pixels = np.empty((height, width, 3), np.uint8)
        try:
            decode_window(stored.image, self.image_encoding, stored.shape, (0, 0, height, width), pixels)
        except CorruptDataError as error:
            raise self.named(ordinal, error) from error
        return pixels

    def _checked_at_once(self, ordinals: npt.NDArray[np.int64]) -> Sequence[CheckedImage | None]:
        """What compiled code finds sound."""
        table, promised = self.table, self._promised(ordinals)
        offsets, lengths = table.offset_bytes[ordinals], table.length_bytes[ordinals]
        paths = [table.paths[shard] for shard in table.shard[ordinals].tolist()]
        try:
            if self.container == "gzip":
                places = zip(paths, offsets.tolist(), lengths.tolist(), strict=True)
                framed = [inflate_record(self._ranges.read(*place)) for place in places]
                return check_records(framed, promised)
            files = [self._ranges.open_local(path) for path in paths]
        except (CorruptDataError, NotFoundError):
            return [None] * ordinals.size  # reading one by one says which, and why
        descriptors = [file.fileno() for file in files if file is not None]
        if len(descriptors) < len(files):
            return [None] * ordinals.size
        return read_records(descriptors, offsets, lengths, promised)

    def _promised(self, ordinals: npt.NDArray[np.int64]) -> Promised:
        table = self.table
        return Promised(
            table.id[ordinals], table.label[ordinals], table.height[ordinals], table.width[ordinals]
        )

    def _check(self, ordinal: int, record: ImageRecord) -> None:
        table = self.table
        found = (record.id.encode("ascii"), record.label, record.height, record.width)
        wanted = (table.id[ordinal], table.label[ordinal], table.height[ordinal], table.width[ordinal])
        if found != wanted:
            raise CorruptDataError(f"(id, label, height, width) is {found}, the index says {wanted}")

    def follow(self, order: Order, start: int, stop: int) -> None:
        """Say that the steps ``start`` to ``stop`` (epoch * steps_per_epoch + step) are to be read.

        Raises:
            ConfigError: what neighbouring steps need cannot be staged within the budget.
        """
        if isinstance(self._ranges, Staging):
            self._steps_per_epoch = order.steps_per_epoch
            self._ranges.follow(order, self.table, start, stop)

    def reached(self, epoch: int, step: int) -> None:
        """Say that a step is being read."""
        if isinstance(self._ranges, Staging):
            self._ranges.reached(self.table.split, epoch * self._steps_per_epoch + step)

    def leave_out(self, ordinal: int, error: CorruptDataError) -> None:
        """Count a damaged record as left out.

        Raises:
            CorruptDataError: no more may be.
        """
        path = self.table.paths[self.table.shard[ordinal]]
        self.bad.add(self.table.id[ordinal].decode("ascii"), path, error)

    def reopened(self) -> RecordReader:
        """The same records through files of its own: for a process that was forked from this one."""
        own = copy.copy(self)
        own._ranges = copy.copy(self._ranges)
        return own

    def close(self) -> None:
        """Let go of all open files. A staging stays open: it serves other splits too."""
        if isinstance(self._ranges, RangeReader):
            self._ranges.close()
