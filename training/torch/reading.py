"""The batches of a run: read, decoded and augmented in threads while the device works on those before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shardmill.training.order import Passes, rank_slice
from shardmill.training.reading import BatchMaker
from shardmill.training.reading.batch_maker import NumpyBatches
from shardmill.training.reading.opening import Opened
from shardmill.training.run.framework import Input
from shardmill.training.torch.data.batch import TorchBatch, to_torch
from shardmill.training.torch.group import TorchRanks


class Batches(Input):
    """One rank's rows of the steps of an order.

    Attributes:
        maker: makes the batches of the split.
        order: the steps.
    """

    def __init__(
        self, opened: Opened, ranks: TorchRanks, device: Any, shares: tuple[int, ...] | None = None
    ) -> None:
        """Read ``opened`` for a rank; ``shares``: the rows of each rank, None: all take as many."""
        self.opened, self.order = opened, opened.order
        self.maker = BatchMaker(opened.records, opened.spec, threads=ranks.threads)
        self.rows = rank_slice(self.order.global_batch_size, ranks.rank, ranks.num_ranks, shares)
        self._ranks, self._device, self._shares = ranks, device, shares

    def steps(self, start: int, stop: int) -> Iterator[TorchBatch]:
        """Yield the batches of the steps ``start`` to ``stop`` of the run.

        Raises:
            CorruptDataError: a record is damaged; names the record and its shard.
        """
        ranks = self._ranks
        for batch in NumpyBatches(
            self.maker, self.order, Passes(range(start, stop)), ranks.rank, ranks.num_ranks, self._shares
        ):
            if ranks.on_batch is not None:
                ranks.on_batch()
            yield on_device(to_torch(batch), self._device)


def on_device(batch: TorchBatch, device: Any) -> TorchBatch:
    """Return a batch whose images, labels and weights are on a device; copies go on in the background."""
    if device.type == "cpu":
        return batch
    there = {
        name: getattr(batch, name).pin_memory().to(device, non_blocking=True)
        for name in ("images", "labels", "weights")
    }
    return batch._replace(**there)
