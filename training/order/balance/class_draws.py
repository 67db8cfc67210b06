"""The balanced order: segments, passes and circles, as ``shardmill.training.order`` specifies them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shardmill.training.arrays import Ints
from shardmill.training.draws import Purpose, key_of
from shardmill.training.order.permutation import U32, permute, permute_by_table, round_keys_of
from shardmill.training.order.recent_values import RecentValues

_TABLE_BITS = 16


class Intervals:
    """The intervals [0, ends[0]), [ends[0], ends[1]), ...; some may be empty.

    A table of 65,536 equal steps answers most questions; only a number in the same step as the end of an
    interval needs a search. This is five times as fast as a search for every number.
    """

    def __init__(self, ends: Ints) -> None:
        self._ends = ends
        self._shift = max(0, int(ends[-1]).bit_length() - _TABLE_BITS)
        steps = np.arange((int(ends[-1]) >> self._shift) + 1, dtype=np.int64) << self._shift
        self._table = np.searchsorted(ends, steps, side="right")

    def at(self, numbers: Ints) -> Ints:
        """Return the interval of each number: int64 [M]. ``numbers``: int64 [M], within range(ends[-1])."""
        found: Ints = self._table[numbers >> self._shift]
        beyond = np.flatnonzero(numbers >= self._ends[found])
        found[beyond] = np.searchsorted(self._ends, numbers[beyond], side="right")
        return found


# Records that are handled at a time, so that temporary arrays stay small beside the tables.
_CHUNK = 1 << 20
# An epoch with more passes than this has no table of their keys (32 bytes a pass).
_MOST_PASSES = 1 << 20


class ClassDraws:
    """Maps positions to records in an order with a balance rule. Takes four bytes a record."""

    def __init__(self, labels: npt.NDArray[np.integer], counts: Ints, draws: Ints, seed: int) -> None:
        self.draws = draws
        self._seed = seed
        self._counts = counts
        self._num_slots = int(draws.sum())
        drawn = draws > 0
        self._passes = np.zeros_like(draws)
        self._passes[drawn] = -(-draws[drawn] // counts[drawn])
        self._num_segments = int(self._passes.max())
        self._pass_starts = np.cumsum(self._passes) - self._passes
        self._pass_keys = RecentValues(self._make_pass_keys, kept=2)
        self._slot_ends = np.cumsum(draws)
        self._classes = Intervals(self._slot_ends)
        self._circle_starts = np.cumsum(counts) - counts
        self._circles = self._arrange_circles(labels)

    def _arrange_circles(self, labels: npt.NDArray[np.integer]) -> npt.NDArray[np.uint32 | np.uint64]:
        """Return the ordinals class by class, each class in its own keyed order."""
        by_class = _sorted_by_class(labels, self._circle_starts)
        circles = np.empty_like(by_class)
        every_label = np.arange(self._counts.size)
        keys = key_of(Purpose.CIRCLE, self._seed, every_label)
        starts, ends = self._circle_starts, self._circle_starts + self._counts
        for start in range(0, by_class.size, _CHUNK):
            stop = min(start + _CHUNK, by_class.size)
            label = np.repeat(every_label, np.clip(ends, start, stop) - np.clip(starts, start, stop))
            first = starts[label]
            place = np.arange(start, stop, dtype=np.int64) - first
            circles[start:stop] = by_class[first + permute(place, self._counts[label], keys[label])]
        return circles

    def ordinals(self, epoch: int, positions: Ints) -> Ints:
        """Return the records at ``positions`` (int64 [M]) of an epoch: int64 [M]."""
        label, draw = self._draw_at(epoch, positions)
        count, in_epoch = self._counts[label], self.draws[label]
        number, place = np.divmod(draw, count)
        pass_size = np.minimum(count, in_epoch - number * count)
        if self._has_pass_table(positions.size):
            which = self._pass_starts[label] + number
            place = permute_by_table(place, pass_size, self._pass_keys(epoch), which)
        else:
            place = permute(place, pass_size, key_of(Purpose.PASS, self._seed, epoch, label, number))
        around = (epoch * in_epoch + number * count + place) % count
        found: Ints = self._circles[self._circle_starts[label] + around].astype(np.int64)
        return found

    def _has_pass_table(self, num_positions: int) -> bool:
        """Return whether a table of pass keys pays: it fits into memory, and there are enough positions."""
        num_passes = int(self._passes.sum())
        return num_passes <= _MOST_PASSES and num_passes <= 8 * num_positions

    def _make_pass_keys(self, epoch: int) -> U32:
        """Return the round keys of all passes of an epoch, class by class."""
        label = np.repeat(np.arange(self._passes.size), self._passes)
        number = np.arange(label.size) - self._pass_starts[label]
        return round_keys_of(key_of(Purpose.PASS, self._seed, epoch, label, number))

    def _draw_at(self, epoch: int, positions: Ints) -> tuple[Ints, Ints]:
        """Return the class at each position, and the number of the draw within the class and epoch."""
        k = self._num_segments
        segment, local, size = self._segment_at(positions)
        # Positions mostly follow each other, so they are in a few segments.
        first_segment = int(segment.min(initial=k))
        segments = np.arange(first_segment, int(segment.max(initial=0)) + 1)
        if segments.size < segment.size:
            keys = key_of(Purpose.SEGMENT, self._seed, epoch, segments)[segment - first_segment]
        else:
            keys = key_of(Purpose.SEGMENT, self._seed, epoch, segment)
        local = permute(local, size, keys)
        slot = local * k + segment
        label = self._classes.at(slot)
        first = self._slot_ends[label] - self.draws[label]
        earlier = self._below(self._slot_ends[label], segment) - self._below(first, segment)
        # First index within the segment that belongs to the class: ceil((first - segment) / K).
        draw = earlier + local - -((segment - first) // k)
        return label, draw

    def _segment_at(self, positions: Ints) -> tuple[Ints, Ints, Ints]:
        """Return (segment, place in it, its size) of each position. The first segments are longer by one."""
        size, num_longer = divmod(self._num_slots, self._num_segments)
        in_longer = num_longer * (size + 1)
        longer = positions < in_longer
        segment = np.where(longer, positions // (size + 1), num_longer + (positions - in_longer) // size)
        start = segment * size + np.minimum(segment, num_longer)
        return segment, positions - start, size + longer

    def _below(self, slot: Ints, segment: Ints) -> Ints:
        """Count the slots of [0, slot) that are in segments before ``segment``."""
        whole, rest = np.divmod(slot, self._num_segments)
        return whole * segment + np.minimum(rest, segment)


def _sorted_by_class(labels: npt.NDArray[np.integer], starts: Ints) -> npt.NDArray[np.uint32 | np.uint64]:
    """Sort the ordinals by label with a counting sort in chunks, as numbers no wider than needed."""
    by_class: npt.NDArray[np.uint32 | np.uint64]
    by_class = np.empty(labels.size, np.uint32 if labels.size < 1 << 32 else np.uint64)
    ends = starts.copy()  # the next free slot of each class
    narrow = np.uint16 if starts.size <= 1 << 16 else np.uint64  # 16-bit keys are sorted by radix
    for start in range(0, labels.size, _CHUNK):
        chunk = labels[start : start + _CHUNK].astype(narrow)
        places = np.argsort(chunk, kind="stable")
        counts = np.bincount(chunk, minlength=starts.size)
        shift = ends - (np.cumsum(counts) - counts)
        by_class[np.arange(places.size) + shift[chunk[places]]] = places + start
        ends += counts
    return by_class
