"""Divide the records of a split into folds: a pure function of their ids, labels, groups and a seed.

Records of one group are one unit, and so is a record without a group. A unit has the least keyed hash of its
members' ids, and the label of that member. The units of all classes, sorted by (label, hash), are dealt to
the folds in turn. So each fold has nearly the same share of each class, groups stay whole, and neither shards
nor the order of the records matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Ints
from shardmill.training.draws import Purpose, key_of
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


@dataclass(frozen=True, slots=True)
class FoldedRecords:
    """The facts about records by which they are divided.

    Attributes:
        ids: uint64 [N].
        labels: int32 [N].
        groups: int64 [N], the number of each record's group; negative: it has none.
    """

    ids: npt.NDArray[np.uint64]
    labels: npt.NDArray[np.int32]
    groups: Ints


def fold_numbers(records: FoldedRecords, num_folds: int, seed: int) -> Ints:
    """Return the fold of each record: int64 [N], from 0 to ``num_folds`` - 1."""
    ids = records.ids
    hashes = key_of(Purpose.FOLD, seed, ids) if ids.size else ids
    single = records.groups < 0
    units = np.where(single, records.groups.max(initial=-1) + 1 + np.arange(ids.size), records.groups)
    by_hash = np.lexsort((ids, hashes))
    # The first record of each unit in the order of hashes stands for it.
    _, firsts, unit_of = np.unique(units[by_hash], return_index=True, return_inverse=True)
    leaders = by_hash[firsts]
    ranking = np.lexsort((ids[leaders], hashes[leaders], records.labels[leaders]))
    folds = np.empty(leaders.size, np.int64)
    folds[ranking] = np.arange(leaders.size) % num_folds
    found = np.empty(ids.size, np.int64)
    found[by_hash] = folds[unit_of]
    return found
