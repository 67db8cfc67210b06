"""Open the records of a split for an order: choose how shards are read, by block and through a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardmill.infra.errors import ConfigError
from shardmill.training.config import TrainConfig
from shardmill.training.config.data import DataSettings
from shardmill.training.config.reading import Mode, ReadingSettings
from shardmill.training.order import Order
from shardmill.training.reading.blocks.stored import by_block
from shardmill.training.reading.budget import RamBudget
from shardmill.training.reading.cache import CacheMemory, CachePlan, describe, open_cached
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.reading.records.annotations import SplitObjects
from shardmill.training.reading.records.record_reader import RecordReader

if TYPE_CHECKING:
    from shardmill.infra.dataset.version import DatasetVersion


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """The mode of the pipeline, and the reason for people."""

    mode: Mode
    reason: str


EXACT = ModeChoice("indexed", "the order is exact")


def mode_of_run(config: TrainConfig, version: DatasetVersion) -> ModeChoice:
    """Return how a run reads its dataset version; PyTorch always reads in the exact order.

    Raises:
        ConfigError: streaming is set, and cannot fulfil another setting.
    """
    if config.run.framework == "torch":
        return ModeChoice("indexed", "run.framework = 'torch'")
    return choose_mode(version, config.reading, config.data)


def choose_mode(version: DatasetVersion, reading: ReadingSettings, data: DataSettings) -> ModeChoice:
    """Return the mode of ``reading``; for ``auto`` choose the better one.

    Args:
        version: the dataset version to read.
        reading: the settings of reading.
        data: the settings of the order.

    Raises:
        ConfigError: streaming is set, and cannot fulfil another setting.
    """
    obstacle = _obstacle(reading, data, version)
    if reading.mode == "streaming" and obstacle:
        raise ConfigError(f"reading.mode = 'streaming' and {obstacle}", "set reading.mode to auto or indexed")
    if reading.mode != "auto":
        return ModeChoice(reading.mode, f"reading.mode = {reading.mode!r}")
    if version.storage.is_local:
        return ModeChoice("indexed", "the shards are files of this machine, any record is at hand")
    if reading.staging_dir is not None:
        return ModeChoice("indexed", "the shards are staged to this machine")
    if reading.cache == "disk":
        return ModeChoice("indexed", "the records are cached on a disk of this machine")
    if obstacle and data.granularity == "block":
        return ModeChoice("indexed", f"{obstacle}; each block is a request to the object store")
    if obstacle:
        return ModeChoice(
            "indexed",
            f"{obstacle}; each record is a request to the object store: slow, so set reading.staging_dir",
        )
    return ModeChoice("streaming", "the shards are in an object store and not staged")


def consumed(reading: ReadingSettings, mode: Mode) -> dict[str, Any]:
    """Return the settings that decide which pixels come in which order, for a run's identity; JSON-able."""
    found: dict[str, Any] = {"mode": mode, "decoder": reading.decoder if mode == "indexed" else "tensorflow"}
    decoded = reading.cache != "none" and reading.cache_form == "decoded"
    if decoded:
        found["cache_form"] = "decoded"
    if mode == "streaming":
        found["parallel_shards"] = reading.parallel_shards
        # By default the budget determines the size of the buffer.
        buffer = reading.shuffle_buffer
        found |= (
            {"ram_budget_bytes": reading.ram_budget_bytes} if buffer is None else {"shuffle_buffer": buffer}
        )
    return found


def _obstacle(reading: ReadingSettings, data: DataSettings, version: DatasetVersion) -> str | None:
    """Return why shards cannot be streamed, or None."""
    manifest = version.manifest
    if version.is_joined:
        return "several data sets need an exact order"
    if not manifest.samples.is_common:
        return f"TensorFlow does not decode {manifest.samples}"
    if manifest.label_kind != "class":
        return "labels other than one class are read from the indexes"
    if data.balance != "natural":
        return f"data.balance = {data.balance!r} needs an exact order"
    if data.granularity != "record":
        return f"data.granularity = {data.granularity!r} needs an exact order"
    if data.left_out_fold is not None:
        return "data.left_out_fold needs an exact order"
    if reading.max_bad_records:
        return f"reading.max_bad_records = {reading.max_bad_records} needs reading record by record"
    return None


@dataclass(frozen=True, slots=True)
class Opened:
    """The examples of a split, ready to be read.

    Attributes:
        records: reads the records, by block and through a cache where the settings ask for it.
        order: the order of the records.
        spec: what batches hold.
        choice: how shards are read, with the reason.
        cache: the plan of the cache.
        rows: the rows of each global batch that this process reads.
    """

    records: RecordReader
    order: Order
    spec: ExampleSpec
    choice: ModeChoice
    cache: CachePlan
    rows: slice

    def budget(self) -> RamBudget:
        """Divide the memory of reading for batches of one size.

        Raises:
            ConfigError: two batches do not fit beside cache and windows.
        """
        windows = self.records.windows.num_bytes
        total, side = self.spec.reading.ram_budget_bytes, self.spec.image_size or 0
        budget = RamBudget(total, cache=self.cache.memory_bytes, windows=windows)
        budget.check(self.order.global_batch_size * side * side * self.spec.pixel_bytes)
        return budget

    def described(self) -> dict[str, Any]:
        """Describe how examples are read for the result of a run, JSON-able."""
        return {"mode": self.choice.mode, "reason": self.choice.reason, "cache": describe(self.cache)}

    def __str__(self) -> str:
        kept = f", {self.cache.form} images cached ({self.cache.place})" if self.cache.place != "none" else ""
        return f"{self.choice.mode}, as {self.choice.reason}{kept}"


def open_for_run(
    config: TrainConfig,
    source: RecordReader,
    order: Order,
    objects: SplitObjects | None = None,
    rows: slice | None = None,
) -> Opened:
    """Open the training examples of a run.

    Args:
        config: the configuration of the run.
        source: reads the records from the shards.
        order: the order of the run.
        objects: the objects in the images, where they are the labels.
        rows: the rows of each global batch that this rank reads; None: all.

    Raises:
        ConfigError: the settings contradict each other, or need more memory than they allow.
        StorageError: there is no room on the disk for a cache that must fit.
    """
    choice = mode_of_run(config, source.split.version)
    if rows is not None and choice.mode == "streaming":
        raise ConfigError(
            f"several ranks need an exact order, and the shards are streamed ({choice.reason})",
            "set reading.staging_dir, or reading.mode to indexed",
        )
    return open_for_order(source, order, ExampleSpec.of_settings(config, objects), choice, rows=rows)


def open_for_order(
    source: RecordReader,
    order: Order,
    spec: ExampleSpec,
    choice: ModeChoice = EXACT,
    *,
    rows: slice | None = None,
    memory: CacheMemory | None = None,
) -> Opened:
    """Open the records for an order, with the cache of ``reading.cache``.

    Args:
        source: reads the records from the shards.
        order: the order of the records.
        spec: what batches hold.
        choice: how shards are read.
        rows: the rows of each global batch that this process reads; None: all.
        memory: caches in memory to use again; by default this reader has one of its own.

    Raises:
        ConfigError: the windows of an order by block, or a cache that must fit, need more memory; or the
            augmentation or the wanted channels do not fit the images.
        StorageError: there is no room on the disk for a cache that must fit.
    """
    reading, spec = spec.reading, spec.of_version(source.split.version)
    if reading.cache == "disk":
        records, cache = open_cached(source, reading)
        records = by_block(records, order, reading.ram_budget_bytes)
    else:
        records = by_block(source, order, reading.ram_budget_bytes)
        records, cache = open_cached(records, reading, memory)
    return Opened(records, order, spec, choice, cache, rows or slice(0, order.global_batch_size))
