"""Iterate over batches as numpy arrays. The next ones are made while the caller works on one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from shardmill.training.order import Order, Passes, Shares, StepPlan
from shardmill.training.reading.batches.maker import Batch, BatchMaker

_AHEAD = 2  # batches that are made while the caller works on one


@dataclass(frozen=True, slots=True)
class NumpyBatches:
    """Batches of one split. Each iteration is the next pass; its length is that of the pass to come.

    Attributes:
        maker: maker of the batches.
        order: the order of the records.
        passes: the steps of each iteration.
        rank, num_ranks, shares: whose slice of each step.
        cut_padding: leave the padding of a last step out; the batch is smaller then.
        is_weighted: batches unpack to images, labels and weights.
    """

    maker: BatchMaker
    order: Order
    passes: Passes
    rank: int = 0
    num_ranks: int = 1
    shares: Shares | None = None
    cut_padding: bool = False
    is_weighted: bool = False

    def __len__(self) -> int:
        return len(self.passes.upcoming)

    def __repr__(self) -> str:
        records = self.maker.records
        ranks = "" if self.num_ranks == 1 else f", rank {self.rank} of {self.num_ranks}"
        epoch = self.passes.upcoming.start // self.order.steps_per_epoch
        return (
            f"<{len(self)} batches of {self.order.global_batch_size}{ranks}: {records.split.version.ref} "
            f"{records.table.split}, epoch {epoch}>"
        )

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the next pass.

        Raises:
            CorruptDataError: a record is damaged; names the record and its shard.
        """
        steps = self.passes.begin()
        self.maker.records.prefetch(self.order, steps.start, steps.stop)
        with ThreadPoolExecutor(2, "shardmill-ahead") as ahead:
            made: deque[Future[Batch]] = deque()
            try:
                for run_step in steps:
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
        made = self.maker.make(plan.of_rank(self.rank, self.num_ranks, self.shares))
        return replace(made, is_weighted=True) if self.is_weighted else made


def _without_padding(plan: StepPlan) -> StepPlan:
    """Return the plan without its padding, which comes last."""
    real = slice(plan.num_real)
    return replace(
        plan, positions=plan.positions[real], ordinals=plan.ordinals[real], weights=plan.weights[real]
    )
