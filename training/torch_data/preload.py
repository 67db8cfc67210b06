"""Records held in memory as they are stored: each is read and checked once, at the start."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import psutil

from infra.catalog import DatasetVersion
from infra.errors import UsageError
from infra.examples import ImageRecord
from infra.process import num_cpus
from training.reading.records import RecordReader, StoredImage

# So many records share one array. Large objects are few, so workers that are forked share their memory: to
# count the references of a small object means to write to its page.
_RECORDS_A_PART = 256


class PreloadedRecords(RecordReader):
    """A reader that has all records of its split in memory, encoded."""

    def __init__(self, version: DatasetVersion, source: RecordReader) -> None:
        """Reads all records of ``source``, in stored order.

        Raises:
            UsageError: they need more memory than there is.
            CorruptDataError: names the shard and the record.
        """
        table = source.table
        super().__init__(version, table, bad=source.bad)
        self._starts = np.zeros(len(table) + 1, np.int64)
        self._channels = np.zeros(len(table), np.uint8)
        check_memory(int(table.length_bytes.sum()), table.split)
        parts = range(0, len(table), _RECORDS_A_PART)
        with ThreadPoolExecutor(num_cpus(), "shardmill-preload") as pool:
            self._parts = list(pool.map(lambda begin: self._load(source, begin), parts))
        source.close()

    def _load(self, source: RecordReader, begin: int) -> npt.NDArray[np.uint8]:
        """The images of one part, one behind the other; notes where each begins within it."""
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
        """The record with this number."""
        return self._record_of(ordinal, self._stored(ordinal))

    def read_run(self, first: int, stop: int) -> list[StoredImage]:
        """The stored images of the records ``first`` to ``stop - 1``."""
        return [self._stored(ordinal) for ordinal in range(first, stop)]

    def read_images(self, ordinals: npt.NDArray[np.int64]) -> list[StoredImage]:
        """The stored images of the records with these numbers, in this order; nothing is copied."""
        return [self._stored(ordinal) for ordinal in ordinals.tolist()]

    def _stored(self, ordinal: int) -> StoredImage:
        part = self._parts[ordinal // _RECORDS_A_PART]
        last = (ordinal + 1) % _RECORDS_A_PART == 0 or ordinal + 1 == len(self.table)
        end = part.size if last else int(self._starts[ordinal + 1])
        image = part.data[int(self._starts[ordinal]) : end]
        return self._of_shape(ordinal, image, int(self._channels[ordinal]))


def check_memory(num_bytes: int, split: str) -> None:
    """Raises:
    UsageError: a split of ``num_bytes`` does not fit this machine's memory.
    """
    available = psutil.virtual_memory().available
    if num_bytes > available:
        raise UsageError(
            f"the records of split {split!r} take {num_bytes / 2**30:.1f} GiB, "
            f"and {available / 2**30:.1f} GiB of memory are available",
            "leave out preload: records are then read when they are needed",
        )
