"""Whole batches of one rank as an iterable dataset. Worker w of W makes steps w, w + W, and so on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from torch.utils.data import IterableDataset, get_worker_info

from shardmill.infra.arguments import at_least, checked
from shardmill.training.reading.batches.maker import BatchMaker
from shardmill.training.reading.workers import in_worker
from shardmill.training.torch.data.batch import TorchBatch, to_torch
from shardmill.training.torch.data.ranks import RankOrder

# A step that no run reaches.
_ENDLESS = 1 << 62


@checked
class StepBatches(IterableDataset):  # type: ignore[misc]
    """The batches of the steps ``start`` to ``stop`` of the run, for ``DataLoader(..., batch_size=None)``.

    The elements are whole batches. With any number of workers they come in the order of the steps, because a
    ``DataLoader`` takes from its workers in turn.
    """

    def __init__(self, maker: BatchMaker, order: RankOrder, start: int = 0, stop: int | None = None) -> None:
        """Make a dataset of the steps ``start`` to ``stop``.

        Args:
            maker: makes the batches. Each worker has a copy with one thread.
            order: the steps, cut to the slice of one rank.
            start: the first step (epoch * steps_per_epoch + step).
            stop: the step behind the last one; None: the epochs never end.

        Raises:
            UsageError: ``start`` is below 0, or ``stop`` below ``start``.
        """
        super().__init__()
        at_least(0, start=start)
        at_least(start, stop=stop)
        self.maker = maker
        self.order = order
        self.start = start
        self.stop = stop

    def __iter__(self) -> Iterator[TorchBatch]:
        worker = get_worker_info()
        first, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        maker = self.maker if worker is None else in_worker(self.maker)
        begin = self.start + first
        maker.records.prefetch(self.order.order, begin, _ENDLESS if self.stop is None else self.stop)
        steps = itertools.count(begin, stride) if self.stop is None else range(begin, self.stop, stride)
        for run_step in steps:
            yield to_torch(maker.make(self.order.plan(run_step)))
