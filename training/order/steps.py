"""The examples of one step, and the slice of them that a rank takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Floats, Ints
from shardmill.training.order.blocks import Blocks
from shardmill.training.order.shares import Shares, rank_slice

LastBatch = Literal["pad", "drop"]


class Order(Protocol):
    """The properties of an order that readers use."""

    seed: int
    global_batch_size: int
    steps_per_epoch: int
    num_records: int
    blocks: Blocks | None  # the blocks of an order by block
    class_weights: Floats | None  # float64 [C], of the classes in the loss; None: all weigh alike

    def step(self, epoch: int, step: int) -> StepPlan:
        """Return the examples of one step."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The examples of one step, or of one rank's slice of it.

    Attributes:
        seed: the run's seed; augmentation draws from (seed, epoch, position).
        epoch, step: the step of the run.
        positions: int64 [B] within the epoch; padding has positions from N on.
        ordinals: int64 [B], the record at each position.
        num_real: examples of the whole step that are not padding; they come first.
        weights: float32 [B], 0 for padding. The weights of the real examples are positive and add up to 1
            over all ranks: 1 / num_real each, or in proportion to the weight of the class. So the weighted
            losses, summed over all ranks, are the (weighted) mean over the step's real examples.
    """

    seed: int
    epoch: int
    step: int
    positions: Ints
    ordinals: Ints
    num_real: int
    weights: npt.NDArray[np.float32]

    def of_rank(self, rank: int, num_ranks: int, shares: Shares | None = None) -> StepPlan:
        """Return the slice that a rank takes (``shardmill.training.order.shares.rank_slice``).

        Raises:
            UsageError: the shares do not fit the ranks.
        """
        return self.of_rows(rank_slice(self.ordinals.size, rank, num_ranks, shares))

    def of_rows(self, part: slice) -> StepPlan:
        """Return the rows ``part`` of this plan."""
        return replace(
            self,
            positions=self.positions[part],
            ordinals=self.ordinals[part],
            weights=self.weights[part],
        )


class SequentialOrder:
    """Every record once, in stored order: for evaluation.

    With ``records`` (int64 [M], ascending ordinals) only these.
    """

    seed = 0  # nothing is drawn: evaluation is not augmented
    blocks: Blocks | None = None
    class_weights: Floats | None = None

    def __init__(
        self,
        num_records: int,
        global_batch_size: int,
        last_batch: LastBatch = "pad",
        records: Ints | None = None,
    ) -> None:
        self.num_records = num_records = num_records if records is None else records.size
        self._records = records
        self.global_batch_size = global_batch_size
        full, rest = divmod(num_records, global_batch_size)
        self.steps_per_epoch = full + (1 if rest and last_batch == "pad" else 0)

    def step(self, epoch: int, step: int) -> StepPlan:
        """Return the examples of a step. Their weights are 1, and 0 for padding."""
        start = step * self.global_batch_size
        positions = np.arange(start, start + self.global_batch_size, dtype=np.int64)
        real = positions < self.num_records
        ordinals = np.where(real, positions, 0)
        if self._records is not None:
            ordinals = self._records[ordinals]
        weights = real.astype(np.float32)
        return StepPlan(self.seed, epoch, step, positions, ordinals, int(real.sum()), weights)
