"""Keep images between epochs, before shuffling and augmentation, so that every epoch can use them.

A cache has the largest of the requested forms that fits its budget.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from shardmill.infra import progress as events
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError, StorageError
from shardmill.infra.format.examples import ImageRecord
from shardmill.infra.processes.process import num_cpus
from shardmill.training.arrays import Ints
from shardmill.training.config.reading import CacheForm, ReadingSettings
from shardmill.training.order import Order
from shardmill.training.reading.cache.folder import CacheFolder, cache_name
from shardmill.training.reading.cache.stores import CachedImage, ImageStore, MemoryStore
from shardmill.training.reading.records.annotations import check_without_cache
from shardmill.training.reading.records.record_reader import RecordReader
from shardmill.training.reading.records.split_records import EncodedImage
from shardmill.training.reading.records.split_table import SplitTable, record_runs


@dataclass(frozen=True, slots=True)
class CachePlan:
    """The place and form of a cache.

    Attributes:
        place: "none", "memory" or "disk".
        form: images as stored, or decoded (uint8 [h, w, 3] each, or [h, w, C] of their type).
        offsets: int64 [N + 1], where each image begins, and the end of the last (bytes).
        reason: why the plan differs from the settings; empty if it does not.
    """

    place: Literal["none", "memory", "disk"]
    form: CacheForm
    offsets: Ints
    reason: str = ""

    @property
    def num_bytes(self) -> int:
        """The size of all images (bytes)."""
        return int(self.offsets[-1])

    @property
    def memory_bytes(self) -> int:
        """The memory that the cache takes (bytes)."""
        return self.num_bytes if self.place == "memory" else 0


def no_cache(reason: str = "") -> CachePlan:
    """Return the plan of no cache. ``reason``: why, if the settings ask for one."""
    return CachePlan("none", "encoded", np.zeros(1, np.int64), reason)


def plan_cache(
    version: DatasetVersion, table: SplitTable, reading: ReadingSettings, budget_bytes: int
) -> CachePlan:
    """Plan the cache that ``reading`` asks for, or the part of it that fits ``budget_bytes``.

    Raises:
        ConfigError: it does not fit, and ``reading.cache_overflow`` is "refuse".
    """
    forms: tuple[CacheForm, ...] = ("decoded", "encoded") if reading.cache_form == "decoded" else ("encoded",)
    problems: list[str] = []
    for form in forms:
        offsets = image_offsets(version, table, form)
        if offsets[-1] <= budget_bytes:
            return CachePlan(reading.cache, form, offsets, "; ".join(problems))
        problems.append(
            f"the {form} images of {version.ref} {table.split} take {offsets[-1]:,} bytes, and the cache "
            f"({reading.cache}) may take {budget_bytes:,}"
        )
        if reading.cache_overflow == "refuse":
            raise ConfigError(
                problems[0],
                f"set reading.cache_bytes to at least {offsets[-1]}"
                + (" and reading.ram_budget_bytes to twice that" if reading.cache == "memory" else ""),
            )
    return no_cache("; ".join(problems))


def image_offsets(version: DatasetVersion, table: SplitTable, form: CacheForm) -> Ints:
    """Return the offset of each image in a cache of consecutive images, and the end: int64 [N + 1].

    Raises:
        ConfigError: the images have more channels than a cache can state.
    """
    samples = version.manifest.samples
    if samples.channels > _MOST_CHANNELS:
        raise ConfigError(
            f"the images of {version.ref} are {samples}, and a cache holds at most {_MOST_CHANNELS}",
            "leave reading.cache and preload out",
        )
    if form == "decoded":
        sizes = table.height.astype(np.int64) * table.width * samples.decoded.pixel_bytes
    else:
        columns = [version.rows(shard, ["stored_bytes"]) for shard in version.shards(table.split)]
        sizes = np.concatenate([column["stored_bytes"].to_numpy() for column in columns]).astype(np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


_RUN_BYTES = 1 << 20
_MOST_CHANNELS = 255


class CachedReader(RecordReader):
    """Reads records through a cache. Images that it lacks are read from the shards and added.

    If the cache holds decoded images, ``image_encoding`` is "raw" and grey images have three channels.
    """

    reads_single_records = False

    def __init__(
        self,
        source: RecordReader,
        store: ImageStore,
        form: CacheForm,
        held: contextlib.ExitStack | None = None,
    ) -> None:
        """Make a reader that asks ``store`` first.

        Args:
            source: reads the records from the shards.
            store: holds the images.
            form: the form that images have in the store.
            held: is closed with this reader.
        """
        self.split = source.split
        self._source = source
        self.windows = source.windows
        self._store = store
        self._form = form
        self._held = held
        self.image_encoding = "raw" if form == "decoded" else source.image_encoding

    def prefetch(self, order: Order, start: int, stop: int) -> None:
        """See ``RecordReader``."""
        self._source.prefetch(order, start, stop)

    def advance(self, epoch: int, step: int) -> None:
        """See ``RecordReader``."""
        self._source.advance(epoch, step)

    def read_images(self, ordinals: Ints) -> list[EncodedImage]:
        """See ``RecordReader``."""
        asked: list[int] = ordinals.tolist()
        found = [self._store.get(ordinal) for ordinal in asked]
        missing = [ordinal for ordinal, image in zip(asked, found, strict=True) if image is None]
        if missing:
            self._keep(missing, self._source.read_images(np.array(missing)))
        return self._kept(asked, found)

    def read_run(self, first: int, stop: int) -> list[EncodedImage]:
        """See ``RecordReader``."""
        asked = list(range(first, stop))
        found = [self._store.get(ordinal) for ordinal in asked]
        if any(image is None for image in found):
            self._keep(asked, self._source.read_run(first, stop))
        return self._kept(asked, found)

    def read(self, ordinal: int) -> ImageRecord:
        """See ``RecordReader``."""
        [stored] = self.read_images(np.array([ordinal]))
        return self.split.record(ordinal, stored)

    def _keep(self, ordinals: list[int], images: list[EncodedImage]) -> None:
        for ordinal, stored in zip(ordinals, images, strict=True):
            self._store.put(ordinal, *to_cache_form(self._source, ordinal, stored, self._form))

    def _kept(self, ordinals: list[int], found: list[CachedImage | None]) -> list[EncodedImage]:
        """Return the images that were found before, and those that have been added since."""
        images = []
        for ordinal, image in zip(ordinals, found, strict=True):
            kept = image or self._store.get(ordinal)
            assert kept is not None, "a cache keeps every image that was put into it"
            images.append(self.split.stored_image(ordinal, kept.image, kept.channels))
        return images

    def reopened(self) -> RecordReader:
        """See ``RecordReader``. A cache in memory is shared with the process that was forked."""
        reopened = copy.copy(self)
        reopened._source = self._source.reopened()
        reopened._held = None
        return reopened

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_held": None}

    def close(self) -> None:
        """Close the reader of the shards, and release the cache."""
        self._source.close()
        if self._held is not None:
            self._held.close()


class CacheMemory:
    """The caches in memory of one dataset version, which several readers of this process use together."""

    def __init__(self) -> None:
        self._stores: dict[tuple[str, CacheForm], MemoryStore] = {}

    def store(self, split: str, plan: CachePlan) -> MemoryStore:
        """Return the store of a split; an empty one at the first call."""
        key = (split, plan.form)
        if key not in self._stores:
            self._stores[key] = MemoryStore(plan.offsets)
        return self._stores[key]


def open_cached(
    source: RecordReader, reading: ReadingSettings, memory: CacheMemory | None = None
) -> tuple[RecordReader, CachePlan]:
    """Open the cache that ``reading`` asks for. Return the reader to use, and the plan of the cache.

    A cache in memory fills as records are read; one on disk is made whole first, unless it is there already.

    Raises:
        ConfigError: the split does not fit, and ``reading.cache_overflow`` is "refuse"; or it has masks.
        StorageError: there is no room on the disk, and ``reading.cache_overflow`` is "refuse".
    """
    if reading.cache == "none":
        return source, no_cache()
    check_without_cache(source.table.mask, "set reading.cache to none")
    if reading.cache == "memory":
        asked = reading.cache_bytes
        budget = reading.ram_budget_bytes // 2 if asked is None else min(asked, reading.ram_budget_bytes)
    else:
        budget = CacheFolder(reading.cache_dir).budget(reading.cache_bytes)
    version = source.split.version
    plan = plan_cache(version, source.table, reading, budget)
    if plan.reason:
        events.log(f"{plan.reason}: {_instead(plan)}", level="warning")
    if plan.place == "memory":
        store = (CacheMemory() if memory is None else memory).store(source.table.split, plan)
        return CachedReader(source, store, plan.form), plan
    if plan.place == "disk":
        return _on_disk(source, reading, plan, budget)
    return source, plan


def _instead(plan: CachePlan) -> str:
    return "nothing is cached" if plan.place == "none" else f"{plan.form} images are cached in their place"


def _on_disk(
    source: RecordReader, reading: ReadingSettings, plan: CachePlan, budget: int
) -> tuple[RecordReader, CachePlan]:
    folder = CacheFolder(reading.cache_dir)
    held = contextlib.ExitStack()
    name = cache_name(source.split.version, source.table.split, plan.form)
    size = plan.num_bytes + 16 * len(source.table)
    try:
        opened = folder.opened(name, len(source.table), size, budget, lambda: all_images(source, plan.form))
        store = held.enter_context(opened)
    except StorageError as error:
        if reading.cache_overflow == "refuse":
            raise
        events.log(f"{error.message}: nothing is cached", level="warning")
        return source, no_cache(error.message)
    return CachedReader(source, cast(ImageStore, store), plan.form, held), plan


def all_images(
    source: RecordReader, form: CacheForm, purpose: str = "cache"
) -> Iterator[tuple[bytes | memoryview, int]]:
    """Yield every image of the split, and its channels, by ordinal. Several threads read.

    Args:
        source: reads the records.
        form: the form of the images.
        purpose: the stage whose progress is reported.
    """
    stage, total = f"{purpose} {source.table.split}", len(source.table)
    begins = record_runs(source.table, _RUN_BYTES).tolist()
    events.stage(stage, total)

    def run(number: int) -> list[tuple[bytes | memoryview, int]]:
        first, stop = begins[number], begins[number + 1]
        stored = enumerate(source.read_run(first, stop), first)
        return [to_cache_form(source, ordinal, image, form) for ordinal, image in stored]

    with ThreadPoolExecutor(num_cpus(), "shardmill-cache") as pool:
        ahead = 2 * num_cpus()
        for start in range(0, len(begins) - 1, ahead):
            for number, images in enumerate(pool.map(run, range(start, min(start + ahead, len(begins) - 1)))):
                yield from images
                events.progress(stage, begins[start + number + 1], total)


def to_cache_form(
    source: RecordReader, ordinal: int, stored: EncodedImage, form: CacheForm
) -> tuple[bytes | memoryview, int]:
    """Convert a stored image to the form of a cache. Return its bytes and its number of channels.

    Raises:
        CorruptDataError: the image cannot be decoded.
    """
    if form == "encoded":
        return stored.image, stored.shape[2]
    pixels = source.decoded(ordinal, stored)
    return pixels.reshape(-1).view(np.uint8).data, pixels.shape[2]


def describe(plan: CachePlan) -> dict[str, Any]:
    """Describe a cache for the result of a run, JSON-able."""
    return {"place": plan.place, "form": plan.form, "num_bytes": plan.num_bytes, "reason": plan.reason}
