"""The order of a run over one split (the algorithm stands in the package's docstring)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from infra.errors import ConfigError, DataError
from infra.wording import counted
from training.order.balance import RULES
from training.order.class_draws import ClassDraws
from training.order.hashing import key_of
from training.order.permutation import permute
from training.order.steps import Ints, LastBatch, StepPlan

# The first part of the key, which keeps permutations apart (others: training.order.class_draws).
_EPOCH = 1


class TrainingOrder:
    """The order of one run over one split. Cheap to ask for any step; safe for many threads."""

    def __init__(
        self,
        labels: npt.NDArray[np.integer],
        *,
        seed: int,
        global_batch_size: int,
        balance: str = "natural",
        last_batch: LastBatch = "pad",
    ) -> None:
        """Args:
            labels: int [N], the label of each record by ordinal.
            seed: names the order.
            global_batch_size: examples a step, over all ranks.
            balance: a name of ``balance.RULES``.
            last_batch: what becomes of a last step that is not full.

        Raises:
            DataError: there are no records.
            ConfigError: the epoch would have no step.
        """
        self.num_records = int(labels.size)
        self.seed = seed
        self.global_batch_size = global_batch_size
        if not self.num_records:
            raise DataError("the split has no records to train on", "prepare a dataset with a train split")
        if last_batch == "drop" and self.num_records < global_batch_size:
            raise ConfigError(
                f"an epoch of {counted(self.num_records, 'record')} has no full batch of {global_batch_size}",
                f"set data.global_batch_size to at most {self.num_records}, or data.last_batch to pad",
            )
        full, rest = divmod(self.num_records, global_batch_size)
        self.steps_per_epoch = full + (1 if rest and last_batch == "pad" else 0)
        counts = np.bincount(labels).astype(np.int64)
        draws = RULES[balance](counts)
        self._classes = None if np.array_equal(draws, counts) else ClassDraws(labels, counts, draws, seed)

    @property
    def draws_per_class(self) -> Ints | None:
        """Draws of each label in an epoch, or None where each record comes once."""
        return None if self._classes is None else self._classes.draws

    def ordinals(self, epoch: int, positions: Ints) -> Ints:
        """The records at ``positions`` (int64 [M], within range(N)) of an epoch: int64 [M]."""
        if self._classes is not None:
            return self._classes.ordinals(epoch, positions)
        return permute(positions, self.num_records, key_of(_EPOCH, self.seed, epoch))

    def step(self, epoch: int, step: int) -> StepPlan:
        """The examples of a step."""
        if not 0 <= step < self.steps_per_epoch:
            raise IndexError(f"step {step} of an epoch of {self.steps_per_epoch} steps")
        start = step * self.global_batch_size
        positions = np.arange(start, start + self.global_batch_size, dtype=np.int64)
        num_real = min(self.global_batch_size, self.num_records - start)
        weights = np.zeros(self.global_batch_size, np.float32)
        weights[:num_real] = 1.0 / num_real
        ordinals = self.ordinals(epoch, positions % self.num_records)
        return StepPlan(epoch, step, positions, ordinals, num_real, weights)
