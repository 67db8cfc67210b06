"""The batches of a run: read, decoded and augmented in threads while the device works on those before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardmill.training.config import TrainConfig, image_size_of
from shardmill.training.models.spec import ModelSpec
from shardmill.training.order import Order, Passes, rank_slice
from shardmill.training.reading import BatchMaker, RecordReader
from shardmill.training.reading.batches.iterate import NumpyBatches
from shardmill.training.reading.budget import RamBudget
from shardmill.training.reading.cache import CachePlan, describe
from shardmill.training.reading.opening import open_for_order
from shardmill.training.run.framework import Input
from shardmill.training.run.sharing.division import Division
from shardmill.training.torch.data.batch import TorchBatch, to_torch
from shardmill.training.torch.group import TorchRanks


@dataclass(frozen=True, slots=True)
class Batches(Input):
    """One rank's rows of the steps of an order.

    Attributes:
        maker: makes the batches of the split.
        order: the steps.
        ranks: the ranks that share each step.
        device: where the batches go.
        shares: the rows of each rank; None: all take as many.
        cache: the plan of the cache of the records; None: they are not cached.
    """

    maker: BatchMaker
    order: Order
    ranks: TorchRanks
    device: Any
    shares: tuple[int, ...] | None = None
    cache: CachePlan | None = None

    @property
    def rows(self) -> slice:  # type: ignore[override]
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

    def described(self) -> dict[str, Any]:
        """Describe the input for the result of the run, JSON-able."""
        cache = {} if self.cache is None else {"cache": describe(self.cache)}
        return {"mode": "indexed", "reason": "run.framework = 'torch'", **cache}

    def __str__(self) -> str:
        return "indexed, as run.framework = 'torch'"


def on_device(batch: TorchBatch, device: Any) -> TorchBatch:
    """Return a batch whose images, labels and weights are on a device; copies go on in the background."""
    if device.type == "cpu":
        return batch
    there = {
        name: getattr(batch, name).pin_memory().to(device, non_blocking=True)
        for name in ("images", "labels", "weights")
    }
    return batch._replace(**there)


def open_training_input(
    config: TrainConfig,
    source: RecordReader,
    order: Order,
    division: Division,
    ranks: TorchRanks,
    device: Any,
) -> Batches:
    """Open the batches of the train split.

    Args:
        config: the configuration of the run.
        source: the records of the split.
        order: the order of the run.
        division: the rows of each rank.
        ranks: the ranks that share each step.
        device: where the batches go.

    Raises:
        ConfigError: the settings contradict each other, or need more memory than they allow.
    """
    reading, size = config.reading, image_size_of(config)
    reader, cache = open_for_order(source, order, reading)
    budget = RamBudget(reading.ram_budget_bytes, cache=cache.memory_bytes, windows=reader.windows.num_bytes)
    budget.check(order.global_batch_size * size * size * 3)
    maker = BatchMaker(
        reader,
        image_size=size,
        augment=config.augment,
        threads=ranks.threads,
        image_channels=config.data.image_channels,
        fit=config.data.fit or "crop",
    )
    return Batches(maker, order, ranks, device, division.rows, cache)


def open_batches(
    spec: ModelSpec, reader: RecordReader, order: Order, ranks: TorchRanks, device: Any
) -> Batches:
    """Return the batches of a split as a model sees them, without augmentation."""
    maker = BatchMaker(
        reader,
        image_size=spec.image_size,
        threads=ranks.threads,
        image_channels=spec.image_channels,
        fit=spec.fit,
    )
    return Batches(maker, order, ranks, device)
