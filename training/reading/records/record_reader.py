"""The interface of every reader of records: by ordinal, in any order, without a framework.

Implementations: ``ShardReader`` reads shards (local, remote, staged or by block, depending on its
source of bytes), ``CachedReader`` keeps images between epochs, and ``PreloadedRecords`` holds a split in
memory.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from shardmill.infra.errors import CorruptDataError
from shardmill.infra.format.examples import ImageRecord
from shardmill.training.arrays import Ints
from shardmill.training.order import Order, StepPlan
from shardmill.training.reading.budget import WindowMemory
from shardmill.training.reading.decode import Pixels, decode_window
from shardmill.training.reading.records.split_records import EncodedImage, SplitRecords, without_rows
from shardmill.training.reading.records.split_table import SplitTable


class RecordReader(Protocol):
    """Reads records of one split. Safe for many threads, and picklable.

    An implementation inherits from this class to get the methods that are defined by the others.

    Attributes:
        split: the records.
        image_encoding: how the images that this reader returns are encoded; of several data sets those of the
            first (``encoding_of``).
        windows: the memory that records read ahead in windows may take.
        reads_single_records: each record is a read of its own from the dataset's storage, so reading whole
            blocks would save reads.
    """

    split: SplitRecords
    image_encoding: str
    windows: WindowMemory
    reads_single_records: bool

    def read(self, ordinal: int) -> ImageRecord:
        """Read one record.

        Raises:
            CorruptDataError: the record is damaged; names the shard and the record.
        """

    def read_images(self, ordinals: Ints) -> list[EncodedImage]:
        """Read the stored images of the records ``ordinals`` (int64 [M]), in this order.

        Raises:
            CorruptDataError: a record is damaged; names the shard and the record.
        """

    def read_run(self, first: int, stop: int) -> list[EncodedImage]:
        """Read the stored images of the records ``first`` to ``stop - 1`` of one shard, by one read.

        Raises:
            CorruptDataError: a record is damaged; names the shard and the record.
        """

    def prefetch(self, order: Order, start: int, stop: int) -> None:
        """Prepare to read the steps ``start`` to ``stop`` (epoch * steps_per_epoch + step) of an order.

        Raises:
            ConfigError: the shards that neighbouring steps need do not fit the staging budget.
        """

    def advance(self, epoch: int, step: int) -> None:
        """Note that a step is being read. Steps below 0 belong to no order."""

    def reopened(self) -> RecordReader:
        """Return a reader with files, threads and locks of its own, for a forked process."""

    def close(self) -> None:
        """Release open files, threads and memory."""

    @property
    def table(self) -> SplitTable:
        """The places, labels and sizes of the records."""
        return self.split.table

    def encoding_of(self, ordinal: int) -> str:
        """Return how the image of a record that this reader returns is encoded."""
        if self.image_encoding != self.split.image_encoding:  # decoded, in a cache
            return self.image_encoding
        return self.split.version_of(ordinal).manifest.image_encoding

    def read_many(self, ordinals: Ints) -> list[ImageRecord]:
        """Read the records ``ordinals`` (int64 [M]), in this order."""
        return [self.read(ordinal) for ordinal in ordinals.tolist()]

    def read_plan(self, plan: StepPlan) -> tuple[list[ImageRecord], StepPlan]:
        """Read the records of a step. Damaged ones become padding that repeats a sound one.

        Returns:
            The records, and the plan with the damaged records replaced.

        Raises:
            CorruptDataError: a record is damaged and may not be left out, or no record of the step is sound.
        """
        records: list[ImageRecord | None] = []
        for ordinal in plan.ordinals.tolist():
            try:
                records.append(self.read(ordinal))
            except CorruptDataError as error:
                self.split.leave_out(ordinal, error)
                records.append(None)
                last = error
        bad = [row for row, record in enumerate(records) if record is None]
        if bad:
            plan, donor = without_rows(plan, bad)
            if donor is None:
                raise last
            records = [records[donor] if record is None else record for record in records]
        return [record for record in records if record is not None], plan

    def first_sound(self) -> ImageRecord:
        """Read the first record that is not damaged.

        Raises:
            CorruptDataError: a record is damaged and may not be left out.
        """
        last = len(self.table) - 1
        for ordinal in range(last):
            try:
                return self.read(ordinal)
            except CorruptDataError as error:
                self.split.leave_out(ordinal, error)
        return self.read(last)

    def decoded(self, ordinal: int, stored: EncodedImage) -> Pixels:
        """Decode the whole image of a record that this reader returned.

        Returns:
            uint8 [H, W, 3]; of images that are not common (``SampleKind``) [H, W, C] of their type.

        Raises:
            CorruptDataError: the image cannot be decoded; names the shard and the record.
        """
        height, width, _ = stored.shape
        samples = self.split.version.manifest.samples.decoded
        pixels = np.empty((height, width, samples.channels), samples.dtype)
        try:
            whole = 0, 0, height, width
            decode_window(stored.image, self.encoding_of(ordinal), stored.shape, whole, pixels)
        except CorruptDataError as error:
            raise self.split.named(ordinal, error) from error
        return pixels
