"""Compute which shards the next steps of an order need, and how soon. Pure; reads nothing."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Ints
from shardmill.training.order import Order
from shardmill.training.reading.records.split_table import SplitTable

# How long a step's shards stay needed after the step was asked for: other steps are under way at the same
# time, and the ranks of one machine are not at exactly the same step.
_SHARD_MARGIN_STEPS = 2
_MOST_STEPS = 4096  # how far ahead to look
# Steps whose shards are in use at the same time. With a smaller budget a step could never finish.
_STEPS_AT_ONCE = 3


@dataclass(frozen=True, slots=True)
class StepRange:
    """The steps ``start`` to ``stop`` (epoch * steps_per_epoch + step) of an order over one split."""

    order: Order
    table: SplitTable
    start: int
    stop: int

    def shards(self, run_step: int) -> npt.NDArray[np.int32]:
        """Return the shards (indices into ``table.paths``) of a step's global batch, each once."""
        plan = self.order.step(*divmod(run_step, self.order.steps_per_epoch))
        shards: npt.NDArray[np.int32] = np.unique(self.table.shard[plan.ordinals])
        return shards


class ShardLookahead:
    """Knows the shards of the current and the next steps, as far ahead as the budget holds them."""

    def __init__(self, steps: StepRange, num_bytes: Ints, budget_bytes: int) -> None:
        """Start at the first step.

        Args:
            steps: the steps that will be read.
            num_bytes: int64 [num_shards], sizes of ``steps.table.paths``.
            budget_bytes: the most that all shards held at a time may take.
        """
        self.steps = steps
        self._num_bytes = num_bytes
        self._budget_bytes = budget_bytes
        self._restart(steps.start)

    def _restart(self, run_step: int) -> None:
        self._queue: deque[tuple[int, npt.NDArray[np.int32]]] = deque()
        self._counts: Counter[int] = Counter()
        self._bytes = 0
        self._next = run_step

    def advance(self, run_step: int) -> None:
        """Move to ``run_step``. A step before the known ones starts anew from there."""
        if self._queue and run_step < self._queue[0][0]:
            self._restart(run_step)
        if run_step - _SHARD_MARGIN_STEPS >= self._next:
            self._restart(run_step)
        while self._queue and self._queue[0][0] < run_step - _SHARD_MARGIN_STEPS:
            self._forget(self._queue.popleft()[1])
        while self._needs_more(run_step):
            self._add(self._next)

    def _needs_more(self, run_step: int) -> bool:
        if self._next >= self.steps.stop:
            return False
        if self._next <= run_step:
            return True
        is_all = len(self._counts) == self._num_bytes.size
        return not is_all and self._bytes < self._budget_bytes and self._next < run_step + _MOST_STEPS

    def _add(self, run_step: int) -> None:
        shards = self.steps.shards(run_step)
        self._queue.append((run_step, shards))
        self._next = run_step + 1
        for shard in shards.tolist():
            if not self._counts[shard]:
                self._bytes += int(self._num_bytes[shard])
            self._counts[shard] += 1

    def _forget(self, shards: npt.NDArray[np.int32]) -> None:
        for shard in shards.tolist():
            self._counts[shard] -= 1
            if not self._counts[shard]:
                del self._counts[shard]
                self._bytes -= int(self._num_bytes[shard])

    def next_uses(self, at: int) -> dict[int, int]:
        """Return for each known shard the next step that needs it, counted from ``at`` on.

        For a shard that only steps shortly before ``at`` needed, it is the last of those steps.
        """
        found: dict[int, int] = {}
        for run_step, shards in self._queue:
            for shard in shards.tolist():
                if found.get(shard, -1) < at:
                    found[shard] = run_step
        return found


def least_budget(steps: StepRange, num_bytes: Ints) -> int:
    """Return the least budget (bytes) with which the same shards are not fetched over and over.

    Args:
        steps: the steps that will be read.
        num_bytes: int64 [num_shards], sizes of ``steps.table.paths``.
    """
    total = int(num_bytes.sum())
    # An order that touches nearly all shards within four records of each returns to every shard at once.
    some = math.ceil(4 * num_bytes.size / steps.order.global_batch_size)
    if most_bytes_at_once(steps, num_bytes, some, samples=2) > 0.9 * total:
        return total
    return most_bytes_at_once(steps, num_bytes, _STEPS_AT_ONCE)


def most_bytes_at_once(steps: StepRange, num_bytes: Ints, num_steps: int, samples: int = 8) -> int:
    """Return the most bytes of shards that neighbouring steps need together, from a sample of the steps.

    Args:
        steps: the steps that will be read.
        num_bytes: int64 [num_shards], sizes of ``steps.table.paths``.
        num_steps: neighbouring steps that are under way at a time.
        samples: places to look at, evenly along the first epoch.
    """
    stop = min(steps.stop, steps.start + steps.order.steps_per_epoch)
    last = max(stop - num_steps, steps.start)
    starts = np.unique(np.linspace(steps.start, last, samples).astype(np.int64)).tolist()
    most = 0
    for start in starts:
        near = [steps.shards(step) for step in range(start, min(start + num_steps, steps.stop))]
        if near:
            most = max(most, int(num_bytes[np.unique(np.concatenate(near))].sum()))
    return most
