"""A reader that keeps what it has read: before shuffle and augmentation, so that every epoch may use it."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from infra import progress as events
from infra.catalog import DatasetVersion
from infra.errors import StorageError
from infra.examples import ImageRecord
from infra.process import num_cpus
from training.config.reading import CacheForm, ReadingSettings
from training.order import Order
from training.reading.cache.folder import CacheFolder, cache_name
from training.reading.cache.plan import CachePlan, no_cache, plan_cache
from training.reading.cache.stores import CachedImage, ImageStore, MemoryStore
from training.reading.records import RecordReader, StoredImage
from training.reading.runs import runs

_RUN_BYTES = 1 << 20


class CachedReader(RecordReader):
    """Records of one split through a cache; what is not in it yet is read from the shards and put there.

    Of a cache of decoded images ``image_encoding`` is "raw", and grey images have three channels.
    """

    def __init__(
        self,
        version: DatasetVersion,
        source: RecordReader,
        store: ImageStore,
        form: CacheForm,
        held: contextlib.ExitStack | None = None,
    ) -> None:
        """Args:
        version: that the records are of.
        source: reads them from the shards.
        store: of the images.
        form: that images have in it.
        held: what to let go of in the end.
        """
        super().__init__(version, source.table, bad=source.bad)
        self._source = source
        self.window_bytes = source.window_bytes
        self._store = store
        self._form = form
        self._held = held
        self.image_encoding = "raw" if form == "decoded" else source.image_encoding

    def follow(self, order: Order, start: int, stop: int) -> None:
        """See ``RecordReader.follow``."""
        self._source.follow(order, start, stop)

    def reached(self, epoch: int, step: int) -> None:
        """See ``RecordReader.reached``."""
        self._source.reached(epoch, step)

    def read_images(self, ordinals: npt.NDArray[np.int64]) -> list[StoredImage]:
        """See ``RecordReader.read_images``."""
        wanted: list[int] = ordinals.tolist()
        found = [self._store.get(ordinal) for ordinal in wanted]
        missing = [ordinal for ordinal, image in zip(wanted, found, strict=True) if image is None]
        if missing:
            self._keep(missing, self._source.read_images(np.array(missing)))
        return self._kept(wanted, found)

    def read_run(self, first: int, stop: int) -> list[StoredImage]:
        """See ``RecordReader.read_run``."""
        wanted = list(range(first, stop))
        found = [self._store.get(ordinal) for ordinal in wanted]
        if any(image is None for image in found):
            self._keep(wanted, self._source.read_run(first, stop))
        return self._kept(wanted, found)

    def read(self, ordinal: int) -> ImageRecord:
        """See ``RecordReader.read``."""
        [stored] = self.read_images(np.array([ordinal]))
        return self._record_of(ordinal, stored)

    def _keep(self, ordinals: list[int], images: list[StoredImage]) -> None:
        for ordinal, stored in zip(ordinals, images, strict=True):
            self._store.put(ordinal, *formed(self._source, ordinal, stored, self._form))

    def _kept(self, ordinals: list[int], found: list[CachedImage | None]) -> list[StoredImage]:
        """The images that were found, and those that have been put there since."""
        images = []
        for ordinal, image in zip(ordinals, found, strict=True):
            kept = image or self._store.get(ordinal)
            assert kept is not None, "what was put into a cache stays there"
            images.append(self._of_shape(ordinal, kept.image, kept.channels))
        return images

    def reopened(self) -> RecordReader:
        """See ``RecordReader.reopened``. A cache in memory is shared with the process that was forked."""
        own = copy.copy(self)
        own._source = self._source.reopened()
        own._held = None
        return own

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_held": None}

    def close(self) -> None:
        """Let go of the shards, and of the cache."""
        super().close()
        self._source.close()
        if self._held is not None:
            self._held.close()


def open_cached(
    version: DatasetVersion, source: RecordReader, reading: ReadingSettings
) -> tuple[RecordReader, CachePlan]:
    """``source`` through the cache that ``reading`` asks for, and what is cached.

    A cache in memory fills as records are read; one on disk is made whole first, unless it is there already.

    Raises:
        ConfigError: the split does not fit, and ``reading.cache_overflow`` is "refuse".
        StorageError: there is no room on the disk, and ``reading.cache_overflow`` is "refuse".
    """
    if reading.cache == "none":
        return source, no_cache()
    if reading.cache == "memory":
        asked = reading.cache_bytes
        budget = reading.ram_budget_bytes // 2 if asked is None else min(asked, reading.ram_budget_bytes)
    else:
        budget = CacheFolder(reading.cache_dir).budget(reading.cache_bytes)
    plan = plan_cache(version, source.table, reading, budget)
    if plan.reason:
        events.log(f"{plan.reason}: {_instead(plan)}", level="warning")
    if plan.place == "memory":
        return CachedReader(version, source, MemoryStore(plan.offsets), plan.form), plan
    if plan.place == "disk":
        return _on_disk(version, source, reading, plan, budget)
    return source, plan


def _instead(plan: CachePlan) -> str:
    return "nothing is cached" if plan.place == "none" else f"{plan.form} images are cached in their place"


def _on_disk(
    version: DatasetVersion, source: RecordReader, reading: ReadingSettings, plan: CachePlan, budget: int
) -> tuple[RecordReader, CachePlan]:
    folder = CacheFolder(reading.cache_dir)
    held = contextlib.ExitStack()
    name = cache_name(version, source.table.split, plan.form)
    size = plan.num_bytes + 16 * len(source.table)
    try:
        opened = folder.opened(name, len(source.table), size, budget, lambda: _all_images(source, plan.form))
        store = held.enter_context(opened)
    except StorageError as error:
        if reading.cache_overflow == "refuse":
            raise
        events.log(f"{error.message}: nothing is cached", level="warning")
        return source, no_cache(error.message)
    return CachedReader(version, source, cast(ImageStore, store), plan.form, held), plan


def _all_images(source: RecordReader, form: CacheForm) -> Iterator[tuple[bytes | memoryview, int]]:
    """Every image of the split in the form of the cache, by ordinal; read and decoded by several threads."""
    stage, total = f"cache {source.table.split}", len(source.table)
    begins = runs(source.table, _RUN_BYTES).tolist()
    events.stage(stage, total)

    def run(number: int) -> list[tuple[bytes | memoryview, int]]:
        first, stop = begins[number], begins[number + 1]
        stored = enumerate(source.read_run(first, stop), first)
        return [formed(source, ordinal, image, form) for ordinal, image in stored]

    with ThreadPoolExecutor(num_cpus(), "shardmill-cache") as pool:
        ahead = 2 * num_cpus()
        for start in range(0, len(begins) - 1, ahead):
            for number, images in enumerate(pool.map(run, range(start, min(start + ahead, len(begins) - 1)))):
                yield from images
                events.progress(stage, begins[start + number + 1], total)


def formed(
    source: RecordReader, ordinal: int, stored: StoredImage, form: CacheForm
) -> tuple[bytes | memoryview, int]:
    """A stored image as a cache keeps it, and its channels there.

    Raises:
        CorruptDataError: it cannot be decoded.
    """
    if form == "encoded":
        return stored.image, stored.shape[2]
    return source.decoded(ordinal, stored).reshape(-1).data, 3


def describe(plan: CachePlan) -> dict[str, Any]:
    """What is cached, for the result of a run."""
    return {"place": plan.place, "form": plan.form, "num_bytes": plan.num_bytes, "reason": plan.reason}
