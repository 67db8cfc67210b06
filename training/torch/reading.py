"""The batches of a run: read, decoded and augmented in threads while the device works on those before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from shardmill.infra.errors import ConfigError
from shardmill.training.augment.settings import AugmentSettings
from shardmill.training.config import TrainConfig
from shardmill.training.order import Order, Passes, rank_slice
from shardmill.training.reading import BatchMaker, RecordReader
from shardmill.training.reading.batches.iterate import NumpyBatches
from shardmill.training.reading.blocks.stored import by_block
from shardmill.training.reading.budget import RamBudget
from shardmill.training.reading.cache import CachePlan, describe, open_cached
from shardmill.training.run.sharing.division import planned_division, unit_of_rows
from shardmill.training.torch.data.batch import TorchBatch, to_torch
from shardmill.training.torch.ranks.group import RankDevice, TorchRanks


@dataclass(frozen=True, slots=True)
class Batches:
    """One rank's rows of the steps of an order.

    Attributes:
        maker: makes the batches of the split.
        order: the steps.
        ranks: the ranks that share each step.
        device: where the batches go.
        shares: a whole number for each rank, in proportion to which it takes rows; None: all alike.
    """

    maker: BatchMaker
    order: Order
    ranks: TorchRanks
    device: Any
    shares: tuple[int, ...] | None = None

    @property
    def rows(self) -> slice:
        """The rows of each global batch that this rank takes."""
        ranks = self.ranks
        return rank_slice(self.order.global_batch_size, ranks.rank, ranks.num_ranks, self.shares)

    def steps(self, start: int, stop: int) -> Iterator[TorchBatch]:
        """Yield the batches of the steps ``start`` to ``stop`` of the run.

        Raises:
            CorruptDataError: a record is damaged; names the record and its shard.
        """
        ranks = self.ranks
        for batch in NumpyBatches(
            self.maker, self.order, Passes(range(start, stop)), ranks.rank, ranks.num_ranks, self.shares
        ):
            if ranks.on_batch is not None:
                ranks.on_batch()
            yield on_device(to_torch(batch), self.device)


def on_device(batch: TorchBatch, device: Any) -> TorchBatch:
    """Return a batch whose images, labels and weights are on a device; copies go on in the background."""
    if device.type == "cpu":
        return batch
    there = {
        name: getattr(batch, name).pin_memory().to(device, non_blocking=True)
        for name in ("images", "labels", "weights")
    }
    return batch._replace(**there)


@dataclass(frozen=True, slots=True)
class TrainingInput:
    """The batches of the train split, and how they are read.

    Attributes:
        batches: the batches.
        cache: the plan of the cache.
    """

    batches: Batches
    cache: CachePlan

    def described(self) -> dict[str, Any]:
        """Describe the input for the result of the run, JSON-able."""
        return {"mode": "indexed", "reason": "run.framework = 'torch'", "cache": describe(self.cache)}


def open_training_input(
    config: TrainConfig,
    source: RecordReader,
    order: Order,
    image_size: int,
    ranks: TorchRanks,
    own: RankDevice,
    shares: tuple[int, ...] | None,
) -> TrainingInput:
    """Open the batches of the train split.

    Args:
        config: the configuration of the run.
        source: the records of the split.
        order: the order of the run.
        image_size: height and width of the images (pixels).
        ranks: the ranks that share each step.
        own: the device and the threads of this rank.
        shares: the rows of each rank, or numbers in proportion; None: all alike.

    Raises:
        ConfigError: the settings contradict each other, or need more memory than they allow.
    """
    reading = config.reading
    # A cache on disk holds records in stored order, so it lies below the windows of an order by block.
    if reading.cache == "disk":
        reader, cache = open_cached(source, reading)
        reader = by_block(reader, order, reading.ram_budget_bytes)
    else:
        reader, cache = open_cached(by_block(source, order, reading.ram_budget_bytes), reading)
    budget = RamBudget(reading.ram_budget_bytes, cache=cache.memory_bytes, windows=reader.windows.num_bytes)
    budget.check(order.global_batch_size * image_size * image_size * 3)
    batches = open_batches(config, reader, order, image_size, ranks, own, augment=config.augment)
    batches = replace(batches, shares=shares)
    return TrainingInput(batches, cache)


def open_batches(
    config: TrainConfig,
    reader: RecordReader,
    order: Order,
    image_size: int,
    ranks: TorchRanks,
    own: RankDevice,
    augment: AugmentSettings | None = None,
) -> Batches:
    """Return the batches of a split; see ``open_training_input``. ``augment``: None: the central squares."""
    maker = BatchMaker(
        reader,
        image_size=image_size,
        augment=augment,
        threads=own.threads,
        image_channels=config.data.image_channels,
    )
    return Batches(maker, order, ranks, own.device, _shares(config, ranks.num_ranks))


def check_rows(config: TrainConfig, num_ranks: int) -> None:
    """Check that each rank has a row for every part of a step, and each mixed row a partner on its rank.

    Raises:
        ConfigError: the global batch is too small, or cannot be divided so; or ``ranks.shares`` do not fit
            the ranks.
    """
    size, parts = config.data.batch_size, config.run.accumulate_steps
    for rows in planned_division(config, num_ranks, unit_of_rows(config)).rows:
        if rows < parts:
            in_parts = f" in {parts} parts (run.accumulate_steps)" if parts > 1 else ""
            raise ConfigError(
                f"data.global_batch_size = {size} has too few rows for {num_ranks} ranks{in_parts}",
                f"set it to at least {num_ranks * parts}",
            )
        config.augment.check_pairs(rows)


def _shares(config: TrainConfig, num_ranks: int) -> tuple[int, ...] | None:
    """Return the shares that the settings give; None: all ranks take as many rows."""
    given = config.ranks.shares
    return None if isinstance(given, str) or num_ranks == 1 else tuple(given)
