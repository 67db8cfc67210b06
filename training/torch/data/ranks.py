"""One rank's part of an order, used in place of a ``DistributedSampler``.

That one deals out the examples of an epoch: with another number of ranks every batch is another, it repeats
examples so that all ranks have as many, and it has to be told each epoch. Here a rank takes its slice of each
step of the order, which knows nothing of ranks.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch.distributed

from shardmill.infra.arguments import checked
from shardmill.infra.errors import UsageError
from shardmill.training.order import Order, StepPlan, rank_slice


@checked
@dataclass(frozen=True, slots=True)
class RankOrder:
    """One rank's part of an order.

    Attributes:
        order: the order of all ranks together.
        rank: the number of this rank, in [0, num_ranks).
        num_ranks: the number of ranks that share each step.
        shares: a whole number for each rank, in proportion to which it takes rows; None: all alike.
    """

    order: Order
    rank: int = 0
    num_ranks: int = 1
    shares: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        rows = rank_slice(self.order.global_batch_size, self.rank, self.num_ranks, self.shares)
        if rows.start == rows.stop:
            raise UsageError(
                f"{self.num_ranks} ranks cannot share batches of {self.order.global_batch_size}",
                "raise batch_size, which counts the examples of all ranks together",
            )

    @property
    def steps_per_epoch(self) -> int:
        """The steps of an epoch, the same for every rank."""
        return self.order.steps_per_epoch

    def plan(self, run_step: int) -> StepPlan:
        """Return the rank's slice of a step.

        Args:
            run_step: counted over all epochs.
        """
        epoch, step = divmod(run_step, self.order.steps_per_epoch)
        return self.order.step(epoch, step).of_rank(self.rank, self.num_ranks, self.shares)


def rank_order(
    order: Order, rank: int | None, num_ranks: int | None, shares: tuple[int, ...] | None
) -> RankOrder:
    """Return the part of one rank; ``torch.distributed`` gives a rank or number of ranks that is None.

    Raises:
        UsageError: the rank would get no row of a step, or the shares do not fit the ranks.
    """
    found_rank, found_num_ranks = this_rank()
    return RankOrder(
        order,
        found_rank if rank is None else rank,
        found_num_ranks if num_ranks is None else num_ranks,
        shares,
    )


def this_rank() -> tuple[int, int]:
    """Return (rank, number of ranks) of this process in ``torch.distributed``; (0, 1) if it is not used."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def ranks_on_this_host() -> int:
    """Return how many ranks share this host's CPUs: as ``torchrun`` says, else all ranks."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", this_rank()[1]))
