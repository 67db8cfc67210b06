"""The order of a run over one split (specified in the package's docstring)."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from shardmill.infra.arguments import at_least, checked
from shardmill.infra.errors import ConfigError, DataError
from shardmill.infra.readable import counted
from shardmill.training.arrays import Ints
from shardmill.training.draws import Purpose, key_of
from shardmill.training.order.balance.class_draws import ClassDraws
from shardmill.training.order.balance.class_weights import WeightRule
from shardmill.training.order.balance.rules import Rule, natural
from shardmill.training.order.blocks import Blocks, BlockSizes
from shardmill.training.order.permutation import permute
from shardmill.training.order.recent_values import RecentValues
from shardmill.training.order.steps import LastBatch, StepPlan

# Positions that are computed together: many cost little more than a few hundred.
_SPAN = 1 << 15
_COUNTED_AT_ONCE = 1 << 20


class _Sequence(Protocol):
    def ordinals(self, epoch: int, positions: Ints) -> Ints:
        """Return the records at ``positions`` (int64 [M], within range(N)) of an epoch: int64 [M]."""


class EachOnce:
    """Natural balance by record: a permutation of all records that is computed, not stored."""

    def __init__(self, num_records: int, seed: int) -> None:
        self._num_records = num_records
        self._seed = seed

    def ordinals(self, epoch: int, positions: Ints) -> Ints:
        """Return the records at ``positions`` (int64 [M], within range(N)) of an epoch: int64 [M]."""
        return permute(positions, self._num_records, key_of(Purpose.EPOCH, self._seed, epoch))


@checked
class TrainingOrder:
    """The order of one run over one split. Any step is cheap to compute. Safe for many threads; picklable."""

    def __init__(
        self,
        labels: npt.NDArray[np.integer],
        *,
        seed: int,
        global_batch_size: int,
        balance: Rule = natural,
        last_batch: LastBatch = "pad",
        blocks: BlockSizes | None = None,
        shard_sizes: Ints | None = None,
        class_weights: WeightRule | None = None,
    ) -> None:
        """Fix the order.

        Args:
            labels: int [N], the label of each record by ordinal.
            seed: the seed of the run.
            global_batch_size: examples a step, over all ranks.
            balance: how often each class is drawn (``shardmill.training.order.balance.rules``).
            last_batch: whether a last step that is not full is padded or dropped.
            blocks: the sizes of an order by block; None: the order is by record. Needs natural balance.
            shard_sizes: int64 [S], records of each shard, for ``blocks``; None: all records are one shard.
            class_weights: the weights of the classes in the loss
                (``shardmill.training.order.balance.class_weights``); None: all examples have the same weight.

        Raises:
            UsageError: an argument is of another type, or a number out of range.
            DataError: there are no records.
            ConfigError: the epoch would have no step, or blocks are combined with a balance rule.
        """
        at_least(1, global_batch_size=global_batch_size)
        at_least(0, seed=seed)
        self.num_records = int(labels.size)
        self.seed = seed
        self.global_batch_size = global_batch_size
        self.steps_per_epoch = _steps_per_epoch(self.num_records, global_batch_size, last_batch)
        self.records_per_class = count_labels(labels)
        self.draws_per_class = balance(self.records_per_class)
        self._sequence = self._make_sequence(labels, blocks, shard_sizes)
        self.blocks = self._sequence if isinstance(self._sequence, Blocks) else None
        self._labels = None if class_weights is None else labels
        self.class_weights = (
            None if class_weights is None else class_weights(self.records_per_class, self.draws_per_class)
        )
        self._spans = RecentValues(self._span, kept=3)

    def _make_sequence(
        self, labels: npt.NDArray[np.integer], blocks: BlockSizes | None, shard_sizes: Ints | None
    ) -> _Sequence:
        counts, draws = self.records_per_class, self.draws_per_class
        each_once = np.array_equal(draws, counts)
        if blocks is not None and not each_once:
            raise ConfigError(
                "data.granularity=block reads every record exactly once, so it cannot be combined with a "
                "data.balance that repeats or leaves out records",
                "set data.granularity=record, or keep block and use data.class_weights instead of "
                "data.balance",
            )
        if blocks is not None:
            sizes = np.array([self.num_records], np.int64) if shard_sizes is None else shard_sizes
            if sizes.sum() != self.num_records:
                raise DataError(
                    f"the shards have {sizes.sum()} records, but there are {self.num_records} labels"
                )
            return Blocks(sizes, blocks, self.seed)
        return (
            EachOnce(self.num_records, self.seed)
            if each_once
            else ClassDraws(labels, counts, draws, self.seed)
        )

    def ordinals(self, epoch: int, positions: Ints) -> Ints:
        """Return the records at ``positions`` (int64 [M], within range(N)) of an epoch: int64 [M]."""
        return self._sequence.ordinals(epoch, positions)

    def step(self, epoch: int, step: int) -> StepPlan:
        """Return the examples of a step."""
        if not 0 <= step < self.steps_per_epoch:
            raise IndexError(f"step {step} of an epoch of {self.steps_per_epoch} steps")
        start = step * self.global_batch_size
        positions = np.arange(start, start + self.global_batch_size, dtype=np.int64)
        num_real = min(self.global_batch_size, self.num_records - start)
        ordinals = np.empty(self.global_batch_size, np.int64)
        ordinals[:num_real] = self.between(epoch, start, start + num_real)
        if num_real < self.global_batch_size:
            ordinals[num_real:] = self.ordinals(epoch, positions[num_real:] % self.num_records)
        weights = self._weights(ordinals, num_real)
        return StepPlan(self.seed, epoch, step, positions, ordinals, num_real, weights)

    def between(self, epoch: int, start: int, stop: int) -> Ints:
        """Return the records at the positions ``start`` to ``stop`` - 1 of an epoch: int64 [stop - start]."""
        if stop - start > _SPAN:
            return self.ordinals(epoch, np.arange(start, stop, dtype=np.int64))
        first, last = start // _SPAN, (stop - 1) // _SPAN
        spans = [self._spans((epoch, number)) for number in range(first, last + 1)]
        found = spans[0] if first == last else np.concatenate(spans)
        return found[start - first * _SPAN : stop - first * _SPAN]

    def _span(self, key: tuple[int, int]) -> Ints:
        epoch, number = key
        stop = min((number + 1) * _SPAN, self.num_records)
        return self.ordinals(epoch, np.arange(number * _SPAN, stop, dtype=np.int64))

    def _weights(self, ordinals: Ints, num_real: int) -> npt.NDArray[np.float32]:
        """Return the weights of a step's examples: float32 [B]; the weights of real examples add up to 1."""
        weights = np.zeros(ordinals.size, np.float32)
        if self.class_weights is None or self._labels is None:
            weights[:num_real] = 1.0 / num_real
        else:
            each = self.class_weights[self._labels[ordinals[:num_real]]]
            weights[:num_real] = each / each.sum()
        return weights


def _steps_per_epoch(num_records: int, global_batch_size: int, last_batch: LastBatch) -> int:
    if not num_records:
        raise DataError("the split has no records to train on", "prepare a dataset with a train split")
    if last_batch == "drop" and num_records < global_batch_size:
        raise ConfigError(
            f"an epoch of {counted(num_records, 'record')} has no full batch of {global_batch_size}",
            f"set data.global_batch_size to at most {num_records}, or data.last_batch to pad",
        )
    full, rest = divmod(num_records, global_batch_size)
    return full + (1 if rest and last_batch == "pad" else 0)


def count_labels(labels: npt.NDArray[np.integer]) -> Ints:
    """Count the records of each label: int64 [max(labels) + 1]. In chunks, since bincount copies to int64."""
    counts = np.zeros(int(labels.max()) + 1, np.int64)
    for start in range(0, labels.size, _COUNTED_AT_ONCE):
        counts += np.bincount(labels[start : start + _COUNTED_AT_ONCE], minlength=counts.size)
    return counts
