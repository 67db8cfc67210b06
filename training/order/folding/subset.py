"""The order of a run over some of the records of a split."""

from __future__ import annotations

from dataclasses import replace

from shardmill.training.arrays import Ints
from shardmill.training.order.blocks import Blocks
from shardmill.training.order.steps import Order, StepPlan


class SubsetOrder:
    """An order over M records, walked over M chosen records of a larger split. Implements ``Order``."""

    blocks: Blocks | None = None

    def __init__(self, order: Order, records: Ints) -> None:
        """Choose the records.

        Args:
            order: an order by record over range(M).
            records: int64 [M], ordinals in the split, ascending: record i of ``order`` is ``records[i]``.
        """
        assert order.blocks is None, "blocks are neighbours in the shards"
        self.seed = order.seed
        self.global_batch_size = order.global_batch_size
        self.steps_per_epoch = order.steps_per_epoch
        self.num_records = order.num_records
        self.class_weights = order.class_weights
        self._order = order
        self._records = records

    def step(self, epoch: int, step: int) -> StepPlan:
        """Return the examples of one step."""
        plan = self._order.step(epoch, step)
        return replace(plan, ordinals=self._records[plan.ordinals])
