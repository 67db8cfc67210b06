"""Iterate over batches as numpy arrays. The next ones are made while the caller works on one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from training.order import Order, Shares, StepPlan
from training.reading.batches.maker import Batch, BatchMaker

_AHEAD = 2  # batches that are made while the caller works on one


@dataclass(frozen=True, slots=True)
class NumpyBatches:
    """The batches of a run's steps ``start`` to ``stop``. Can be iterated several times.

    Attributes:
        maker: of the batches.
        order: the order of the records.
        start, stop: epoch * steps_per_epoch + step.
        rank, num_ranks, shares: whose slice of each step.
        cut_padding: leave the padding of a last step out; the batch is smaller then.
    """

    maker: BatchMaker
    order: Order
    start: int
    stop: int
    rank: int = 0
    num_ranks: int = 1
    shares: Shares | None = None
    cut_padding: bool = False

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[Batch]:
        """The batches.

        Raises:
            CorruptDataError: a record is damaged; names the record and its shard.
        """
        self.maker.records.prefetch(self.order, self.start, self.stop)
        with ThreadPoolExecutor(2, "shardmill-ahead") as ahead:
            made: deque[Future[Batch]] = deque()
            try:
                for run_step in range(self.start, self.stop):
                    made.append(ahead.submit(self._make, run_step))
                    if len(made) > _AHEAD:
                        yield made.popleft().result()
                while made:
                    yield made.popleft().result()
            finally:
                for batch in made:
                    batch.cancel()

    def _make(self, run_step: int) -> Batch:
        plan = self.order.step(*divmod(run_step, self.order.steps_per_epoch))
        if self.cut_padding:
            plan = _without_padding(plan)
        return self.maker.make(plan.of_rank(self.rank, self.num_ranks, self.shares))


def _without_padding(plan: StepPlan) -> StepPlan:
    """Return the plan without its padding, which comes last."""
    real = slice(plan.num_real)
    return replace(
        plan, positions=plan.positions[real], ordinals=plan.ordinals[real], weights=plan.weights[real]
    )
