"""Hold all records of a split in memory: each is read and checked once, at the start."""

from __future__ import annotations

from multiprocessing.context import get_spawning_popen
from typing import Any

from shardmill.infra.errors import UsageError
from shardmill.infra.format.examples import ImageRecord
from shardmill.infra.processes.trees import free_memory_bytes
from shardmill.training.arrays import Ints
from shardmill.training.config.reading import CacheForm
from shardmill.training.order import Order
from shardmill.training.reading.budget import WindowMemory
from shardmill.training.reading.cache.reader import all_images, image_offsets
from shardmill.training.reading.cache.stores import MemoryStore
from shardmill.training.reading.records.record_reader import RecordReader
from shardmill.training.reading.records.split_records import EncodedImage


class PreloadedRecords(RecordReader):
    """A reader that has all records of its split in memory, which processes that this one starts share.

    If it holds decoded images, ``image_encoding`` is "raw" and grey images have three channels.
    """

    windows = WindowMemory()
    reads_single_records = False

    def __init__(self, source: RecordReader, form: CacheForm = "encoded") -> None:
        """Read all records of ``source``, in stored order, and close it.

        Args:
            source: reads the records from the shards.
            form: the form in which images are held.

        Raises:
            UsageError: they need more memory than there is.
            CorruptDataError: names the shard and the record.
        """
        self.split = source.split
        self.image_encoding = "raw" if form == "decoded" else source.image_encoding
        offsets = image_offsets(source.split.version, source.table, form)
        check_memory(int(offsets[-1]), form, source.table.split)
        self._store = MemoryStore(offsets)
        for ordinal, (image, channels) in enumerate(all_images(source, form, "preload")):
            self._store.put(ordinal, image, channels)
        source.close()

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
        found = self._store.get(ordinal)
        assert found is not None, "all images were stored at the start"
        return self.split.stored_image(ordinal, found.image, found.channels)

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is None:
            raise TypeError("preloaded records reach only the processes that this one starts")
        return self.__dict__


def check_memory(num_bytes: int, form: CacheForm, split: str) -> None:
    """Check that the images of a split fit into this machine's memory.

    Raises:
        UsageError: they take ``num_bytes``, and less memory is available.
    """
    available = free_memory_bytes()
    if num_bytes > available:
        raise UsageError(
            f"the {form} images of split {split!r} take {num_bytes / 2**30:.1f} GiB, "
            f"and {available / 2**30:.1f} GiB of memory are available",
            "leave out preload: records are then read when they are needed",
        )
