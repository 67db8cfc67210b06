"""The order of training: which record at which step for which rank. A pure function, numpy only.

The records of a split are numbered by (shard order in the manifest, row in the shard's index); the number
is the record's *ordinal*. An epoch has as many *positions* as the split has records, N, whatever the balance
rule. Step s of global batch size B covers positions [sB, (s+1)B); rank r of R takes
[floor(rB/R), floor((r+1)B/R)) of them. So any number of ranks walks the same order, and any (epoch, step) is
reached in constant time.

**Natural balance.** Position p of epoch e holds record P(p), P the permutation of range(N) keyed by
(seed, e): each record once.

**Other balance rules** (training.balance) fix the draws m_c of each class c in an epoch, sum m_c = N.

1. *Segments.* The epoch is cut into K = max_c ceil(m_c / n_c) segments, n_c the records of class c. The
   draws, lined up class by class, are dealt to the segments in turn: slot x goes to segment x mod K. So
   every segment has N/K draws and m_c/K of each class, both within one. A permutation keyed by
   (seed, e, segment) spreads the segment's draws over its positions.
2. *Passes.* The draws of a class, counted along the segments, are j = 0 … m_c - 1. They fall into passes of
   n_c draws. A permutation keyed by (seed, e, c, pass) orders the draws of a pass anew.
3. *Rotation.* The records of a class stand in one circle, in an order keyed by (seed, c). Epoch e draws the
   m_c places from e·m_c on, around the circle.

Hence within an epoch each record of class c comes floor(m_c/n_c) or ceil(m_c/n_c) times, at most once in a
pass, and the passes lie one behind the other in time: repeats are spread. Over epochs the counts of any two
records of a class differ by one at most: large classes rotate through all their records.

The bias that is left: which records of a large class share an epoch follows from the circle, which is the
same for the whole run; their order within the epoch does not. A record may come twice close together where
one pass ends and the next begins.

**Last step.** Where B does not divide N, the last step is dropped (``drop``), or filled with the records of
the epoch's first positions at weight zero (``pad``): the shape stays fixed, and batch normalisation sees real
images.

The values are pinned by tests: they never change between versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from infra.errors import ConfigError, DataError
from infra.wording import counted
from training.balance import RULES
from training.hashing import key_of
from training.permutation import permute

Ints = npt.NDArray[np.int64]
LastBatch = Literal["pad", "drop"]

# The first part of every key: keeps the permutations of different purposes apart.
_EPOCH, _SEGMENT, _PASS, _CIRCLE = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The examples of one step, or of one rank's slice of it.

    Attributes:
        epoch, step: where the run is.
        positions: int64 [B] within the epoch; padding goes on counting from N.
        ordinals: int64 [B], the record at each position.
        num_real: examples of the whole step that are no padding; those come first.
        weights: float32 [B], 1 / num_real for an example and 0 for padding: weighted losses, summed over
            all ranks, are the mean over the step's real examples.
    """

    epoch: int
    step: int
    positions: Ints
    ordinals: Ints
    num_real: int
    weights: npt.NDArray[np.float32]

    def of_rank(self, rank: int, num_ranks: int) -> StepPlan:
        """The slice that a rank takes."""
        part = rank_slice(self.ordinals.size, rank, num_ranks)
        return StepPlan(
            self.epoch,
            self.step,
            self.positions[part],
            self.ordinals[part],
            self.num_real,
            self.weights[part],
        )


def rank_slice(global_batch_size: int, rank: int, num_ranks: int) -> slice:
    """The rows of a global batch that a rank takes."""
    return slice(rank * global_batch_size // num_ranks, (rank + 1) * global_batch_size // num_ranks)


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
        self._classes = None if np.array_equal(draws, counts) else _ClassDraws(labels, counts, draws, seed)

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


class SequentialOrder:
    """Every record once, in stored order: for evaluation."""

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


class _ClassDraws:
    """The balanced order: segments, passes and the circle of each class (see the module's docstring)."""

    def __init__(self, labels: npt.NDArray[np.integer], counts: Ints, draws: Ints, seed: int) -> None:
        self.draws = draws
        self._seed = seed
        self._counts = counts
        self._num_slots = int(draws.sum())
        drawn = draws > 0
        self._num_segments = int(np.max(-(-draws[drawn] // counts[drawn])))
        self._slot_ends = np.cumsum(draws)
        self._circle_starts = np.cumsum(counts) - counts
        self._circles = self._arrange_circles(labels)
        # Segment k has the slots x with x mod K = k.
        segments = np.arange(self._num_segments, dtype=np.int64)
        self._segment_sizes = (self._num_slots - segments + self._num_segments - 1) // self._num_segments
        self._segment_ends = np.cumsum(self._segment_sizes)

    def _arrange_circles(self, labels: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Ordinals class by class, each class in its own keyed order."""
        by_class = np.argsort(labels, kind="stable")
        label = labels[by_class].astype(np.int64)
        place = np.arange(by_class.size, dtype=np.int64) - self._circle_starts[label]
        shuffled = permute(place, self._counts[label], key_of(_CIRCLE, self._seed, label))
        circles: Ints = by_class[self._circle_starts[label] + shuffled]
        return circles

    def ordinals(self, epoch: int, positions: Ints) -> Ints:
        label, draw = self._draw_at(epoch, positions)
        count, in_epoch = self._counts[label], self.draws[label]
        number, place = np.divmod(draw, count)
        pass_size = np.minimum(count, in_epoch - number * count)
        place = permute(place, pass_size, key_of(_PASS, self._seed, epoch, label, number))
        around = (epoch * in_epoch + number * count + place) % count
        found: Ints = self._circles[self._circle_starts[label] + around]
        return found

    def _draw_at(self, epoch: int, positions: Ints) -> tuple[Ints, Ints]:
        """The class at each position, and which draw of that class in this epoch it is."""
        k = self._num_segments
        segment = np.searchsorted(self._segment_ends, positions, side="right")
        size = self._segment_sizes[segment]
        local = positions - (self._segment_ends[segment] - size)
        local = permute(local, size, key_of(_SEGMENT, self._seed, epoch, segment))
        slot = local * k + segment
        label = np.searchsorted(self._slot_ends, slot, side="right")
        first = self._slot_ends[label] - self.draws[label]
        earlier = self._below(self._slot_ends[label], segment) - self._below(first, segment)
        # First index within the segment that belongs to the class: ceil((first - segment) / K).
        draw = earlier + local - -((segment - first) // k)
        return label, draw

    def _below(self, slot: Ints, segment: Ints) -> Ints:
        """How many of the slots [0, slot) lie in segments before ``segment``."""
        whole, rest = np.divmod(slot, self._num_segments)
        return whole * segment + np.minimum(rest, segment)
