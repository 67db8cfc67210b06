"""The balanced order: segments, passes and the circle of each class (see the package's docstring)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from training.order.hashing import key_of
from training.order.permutation import permute
from training.order.steps import Ints

# Keep the permutations of different purposes apart; 1 is that of an epoch (training.order.epochs).
_SEGMENT, _PASS, _CIRCLE = 2, 3, 4


class ClassDraws:
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
