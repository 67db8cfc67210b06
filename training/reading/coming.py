"""What the coming steps of an order need: which shards, and how soon. Pure; nothing is read."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from training.order import Order
from training.reading.table import SplitTable

# A step stays needed for so long after it was asked for: others are under way at the same time, and ranks of
# one machine are not at the same step to the dot.
_MARGIN_STEPS = 2
_MOST_STEPS = 4096  # looked ahead
# Steps whose shards are in use at the same time; with fewer in the budget a step would wait for itself.
_STEPS_AT_ONCE = 3


@dataclass(frozen=True, slots=True)
class Course:
    """The steps ``start`` to ``stop`` (epoch * steps_per_epoch + step) of an order over one split."""

    order: Order
    table: SplitTable
    start: int
    stop: int

    def shards(self, run_step: int) -> npt.NDArray[np.int32]:
        """The shards (indices into ``table.paths``) of a step's global batch, each once."""
        plan = self.order.step(*divmod(run_step, self.order.steps_per_epoch))
        shards: npt.NDArray[np.int32] = np.unique(self.table.shard[plan.ordinals])
        return shards


class ComingShards:
    """Follows a course: the shards of the steps from where it is, as far ahead as the budget holds."""

    def __init__(self, course: Course, num_bytes: npt.NDArray[np.int64], budget_bytes: int) -> None:
        """Args:
        course: what is followed.
        num_bytes: int64 [num_shards], sizes of ``course.table.paths``.
        budget_bytes: of shards that are held at a time.
        """
        self.course = course
        self._num_bytes = num_bytes
        self._budget_bytes = budget_bytes
        self._restart(course.start)

    def _restart(self, run_step: int) -> None:
        self._steps: deque[tuple[int, npt.NDArray[np.int32]]] = deque()
        self._counts: Counter[int] = Counter()
        self._bytes = 0
        self._next = run_step

    def reach(self, run_step: int) -> None:
        """The course is at ``run_step`` now; an earlier one than before begins it again."""
        if self._steps and run_step < self._steps[0][0]:
            self._restart(run_step)
        if run_step - _MARGIN_STEPS >= self._next:
            self._restart(run_step)
        while self._steps and self._steps[0][0] < run_step - _MARGIN_STEPS:
            self._forget(self._steps.popleft()[1])
        while self._wants_more(run_step):
            self._add(self._next)

    def _wants_more(self, run_step: int) -> bool:
        if self._next >= self.course.stop:
            return False
        if self._next <= run_step:
            return True
        is_all = len(self._counts) == self._num_bytes.size
        return not is_all and self._bytes < self._budget_bytes and self._next < run_step + _MOST_STEPS

    def _add(self, run_step: int) -> None:
        shards = self.course.shards(run_step)
        self._steps.append((run_step, shards))
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
        """Shard -> the step from ``at`` on that needs it next, as far as the budget reaches.

        A shard that only steps before ``at`` needed, whose time is hardly over, has the last of them.
        """
        found: dict[int, int] = {}
        for run_step, shards in self._steps:
            for shard in shards.tolist():
                if found.get(shard, -1) < at:
                    found[shard] = run_step
        return found


def least_budget(course: Course, num_bytes: npt.NDArray[np.int64]) -> int:
    """The least budget (bytes) under which a course is read without fetching the same shards over and over.

    Args:
        num_bytes: int64 [num_shards], sizes of ``course.table.paths``.
    """
    total = int(num_bytes.sum())
    # An order that has been in nearly all shards after four records of each comes back to each at once.
    some = math.ceil(4 * num_bytes.size / course.order.global_batch_size)
    if most_bytes_at_once(course, num_bytes, some, samples=2) > 0.9 * total:
        return total
    return most_bytes_at_once(course, num_bytes, _STEPS_AT_ONCE)


def most_bytes_at_once(course: Course, num_bytes: npt.NDArray[np.int64], steps: int, samples: int = 8) -> int:
    """Size of the shards that ``steps`` neighbouring steps need together: the most among some of the course.

    Args:
        num_bytes: int64 [num_shards], sizes of ``course.table.paths``.
        steps: that are under way at a time.
        samples: places looked at, evenly along the course's first epoch.
    """
    stop = min(course.stop, course.start + course.order.steps_per_epoch)
    last = max(stop - steps, course.start)
    starts = np.unique(np.linspace(course.start, last, samples).astype(np.int64)).tolist()
    most = 0
    for start in starts:
        near = [course.shards(step) for step in range(start, min(start + steps, course.stop))]
        if near:
            most = max(most, int(num_bytes[np.unique(np.concatenate(near))].sum()))
    return most
