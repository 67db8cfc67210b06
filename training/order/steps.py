"""What an order says of one step, and the slice of it that a rank takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from training.arrays import Floats, Ints
from training.order.shares import Shares, rank_slice

LastBatch = Literal["pad", "drop"]


class Order(Protocol):
    """What readers ask of an order."""

    global_batch_size: int
    steps_per_epoch: int
    class_weights: Floats | None  # float64 [C], of the classes in the loss; None: all weigh alike

    def step(self, epoch: int, step: int) -> StepPlan:
        """The examples of one step."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The examples of one step, or of one rank's slice of it.

    Attributes:
        epoch, step: where the run is.
        positions: int64 [B] within the epoch; padding goes on counting from N.
        ordinals: int64 [B], the record at each position.
        num_real: examples of the whole step that are no padding; those come first.
        weights: float32 [B], 0 for padding; those of the real examples are positive and add up to 1 over all
            ranks, each 1 / num_real or in proportion to the weight of its class. So weighted losses, summed
            over all ranks, are the (weighted) mean over the step's real examples.
    """

    epoch: int
    step: int
    positions: Ints
    ordinals: Ints
    num_real: int
    weights: npt.NDArray[np.float32]

    def of_rank(self, rank: int, num_ranks: int, shares: Shares | None = None) -> StepPlan:
        """The slice that a rank takes (``training.order.shares.rank_slice``).

        Raises:
            UsageError: the shares do not fit the ranks.
        """
        part = rank_slice(self.ordinals.size, rank, num_ranks, shares)
        return StepPlan(
            self.epoch,
            self.step,
            self.positions[part],
            self.ordinals[part],
            self.num_real,
            self.weights[part],
        )


class SequentialOrder:
    """Every record once, in stored order: for evaluation."""

    class_weights: Floats | None = None

    def __init__(self, num_records: int, global_batch_size: int, last_batch: LastBatch = "pad") -> None:
        self.num_records = num_records
        self.global_batch_size = global_batch_size
        full, rest = divmod(num_records, global_batch_size)
        self.steps_per_epoch = full + (1 if rest and last_batch == "pad" else 0)

    def step(self, epoch: int, step: int) -> StepPlan:
        """The examples of a step; the weights are 1 and 0."""
        start = step * self.global_batch_size
        positions = np.arange(start, start + self.global_batch_size, dtype=np.int64)
        real = positions < self.num_records
        ordinals = np.where(real, positions, 0)
        return StepPlan(epoch, step, positions, ordinals, int(real.sum()), real.astype(np.float32))
