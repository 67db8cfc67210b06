"""Hold the records of a split in memory as they are stored: each is read and checked once, at the start."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import psutil

from infra.errors import UsageError
from infra.format.examples import ImageRecord
from infra.processes.process import num_cpus
from training.arrays import Ints
from training.order import Order
from training.reading.budget import WindowMemory
from training.reading.record_reader import RecordReader
from training.reading.split_records import EncodedImage

# Records that share one array. With few large objects, forked workers keep sharing the memory: counting the
# references of many small objects would write to their pages.
_RECORDS_A_PART = 256


class PreloadedRecords(RecordReader):
    """A reader that has all records of its split in memory, encoded."""

    windows = WindowMemory()
    reads_single_records = False

    def __init__(self, source: RecordReader) -> None:
        """Read all records of ``source``, in stored order, and close it.

        Raises:
            UsageError: they need more memory than there is.
            CorruptDataError: names the shard and the record.
        """
        table = source.table
        self.split = source.split
        self.image_encoding = source.split.image_encoding
        self._starts = np.zeros(len(table) + 1, np.int64)
        self._channels = np.zeros(len(table), np.uint8)
        check_memory(int(table.length_bytes.sum()), table.split)
        parts = range(0, len(table), _RECORDS_A_PART)
        with ThreadPoolExecutor(num_cpus(), "shardmill-preload") as pool:
            self._parts = list(pool.map(lambda begin: self._load(source, begin), parts))
        source.close()

    def _load(self, source: RecordReader, begin: int) -> npt.NDArray[np.uint8]:
        """Read the images of one part into one array, and note where each begins in it."""
        ordinals = range(begin, min(begin + _RECORDS_A_PART, len(self.table)))
        images, end = [], 0
        for ordinal in ordinals:
            record = source.read(ordinal)
            images.append(record.image)
            self._starts[ordinal] = end
            self._channels[ordinal] = record.channels
            end += len(record.image)
        return np.frombuffer(b"".join(images), np.uint8)

    def read(self, ordinal: int) -> ImageRecord:
        """See ``RecordReader``."""
        return self.split.record(ordinal, self._stored(ordinal))

    def read_run(self, first: int, stop: int) -> list[EncodedImage]:
        """See ``RecordReader``."""
        return [self._stored(ordinal) for ordinal in range(first, stop)]

    def read_images(self, ordinals: Ints) -> list[EncodedImage]:
        """See ``RecordReader``; nothing is copied."""
        return [self._stored(ordinal) for ordinal in ordinals.tolist()]

    def prefetch(self, order: Order, start: int, stop: int) -> None:
        """Do nothing: all records are in memory."""

    def advance(self, epoch: int, step: int) -> None:
        """Do nothing: all records are in memory."""

    def reopened(self) -> PreloadedRecords:
        """Return this reader: it has no files, threads or locks."""
        return self

    def close(self) -> None:
        """Do nothing: the memory goes with the last reference."""

    def _stored(self, ordinal: int) -> EncodedImage:
        part = self._parts[ordinal // _RECORDS_A_PART]
        last = (ordinal + 1) % _RECORDS_A_PART == 0 or ordinal + 1 == len(self.table)
        end = part.size if last else int(self._starts[ordinal + 1])
        image = part.data[int(self._starts[ordinal]) : end]
        return self.split.stored_image(ordinal, image, int(self._channels[ordinal]))


def check_memory(num_bytes: int, split: str) -> None:
    """Check that the records of a split fit into this machine's memory.

    Raises:
        UsageError: they take ``num_bytes``, and less memory is available.
    """
    available = psutil.virtual_memory().available
    if num_bytes > available:
        raise UsageError(
            f"the records of split {split!r} take {num_bytes / 2**30:.1f} GiB, "
            f"and {available / 2**30:.1f} GiB of memory are available",
            "leave out preload: records are then read when they are needed",
        )
