"""The order of several data sets at once, dealt by their shares (specified in the package's docstring)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from shardmill.infra.errors import UsageError
from shardmill.training.arrays import Floats, Ints
from shardmill.training.config.data import MixtureEnd
from shardmill.training.draws import Purpose, key_of
from shardmill.training.order.balance.class_weights import WeightRule
from shardmill.training.order.blocks import Blocks
from shardmill.training.order.epochs import TrainingOrder
from shardmill.training.order.steps import StepPlan

LONGEST_PERIOD = 1 << 16


def parts_of_weights(weights: Sequence[float]) -> list[int]:
    """Return the positions of each set in a period of the deal, in the ratios of the weights.

    They are exact, for weights as they are written in decimal digits, where that takes at most 65,536
    positions. Otherwise they are the nearest whole numbers of 65,536, by largest remainders, and at least 1.

    Raises:
        UsageError: a weight is not positive and finite, or there are more sets than positions.
    """
    if any(not 0 < weight < math.inf for weight in weights):
        raise UsageError(
            f"the weights {', '.join(f'{weight:g}' for weight in weights)} of data sets: each must be "
            "positive and finite",
            "leave a data set without weight out",
        )
    exact = [Fraction(str(weight)) for weight in weights]
    shares = [weight / sum(exact) for weight in exact]
    period = math.lcm(*(share.denominator for share in shares))
    if period <= LONGEST_PERIOD:
        return [int(share * period) for share in shares]
    spare = LONGEST_PERIOD - len(shares)
    if spare < 0:
        raise UsageError(f"{len(shares)} data sets at once", f"give at most {LONGEST_PERIOD}")
    wanted = [max(share * LONGEST_PERIOD - 1, Fraction(0)) for share in shares]
    scaled = [want * spare / sum(wanted) for want in wanted]
    parts = [int(one) for one in scaled]
    # Rounded, so that powers of sizes, whose last bit depends on the machine, tie alike.
    ranking = sorted(range(len(parts)), key=lambda k: (-round(float(scaled[k] - parts[k]), 6), k))
    for k in ranking[: spare - sum(parts)]:
        parts[k] += 1
    return [1 + part for part in parts]


def weights_of_sizes(sizes: Sequence[int], temperature: float) -> list[float]:
    """Return the weight of each set, in proportion to its number of records to the power of 1 / T.

    1 is in proportion to the sizes; the higher T, the more alike are the weights. The largest set has 1, and
    none less than 1e-12.
    """
    if temperature == 1:
        return [*map(float, sizes)]
    largest = max(sizes)
    return [max(round((size / largest) ** (1 / temperature), 12), 1e-12) for size in sizes]


class Deal:
    """Deals the positions of an endless sequence to sets. Takes twelve bytes a position of its period.

    Attributes:
        parts: the positions of each set in a period.
        period: their sum.
    """

    def __init__(self, parts: Sequence[int]) -> None:
        self.parts = np.array(parts, np.int64)
        self.period = int(self.parts.sum())
        self._sets = _dealt(parts)
        self._draws = np.empty(self.period, np.int64)
        self._places = [np.flatnonzero(self._sets == number) for number in range(len(parts))]
        for places in self._places:
            self._draws[places] = np.arange(places.size)

    def at(self, positions: Ints) -> tuple[npt.NDArray[np.int32], Ints]:
        """Return the set of each position, and the number of the draw from this set: int [M] each."""
        periods, places = np.divmod(positions, self.period)
        sets = self._sets[places]
        return sets, periods * self.parts[sets] + self._draws[places]

    def position(self, number: int, draw: int) -> int:
        """Return the position of a draw of a set."""
        period, within = divmod(draw, int(self.parts[number]))
        return period * self.period + int(self._places[number][within])


def _dealt(parts: Sequence[int]) -> npt.NDArray[np.int32]:
    """Return the set of each position of a period (Tijdeman: The chairman assignment problem, 1980).

    After every position each set is within 1 - 1 / (2K - 2) of its share. A draw of a set may come as soon as
    the set is 1 / (2K - 2) behind its share. Of the draws that may come, the one that must come first does.
    """
    period, twice, multiple = sum(parts), 2 * (len(parts) - 1), math.lcm(*parts)
    begins: list[list[tuple[int, int]]] = [[] for _ in range(period)]
    for number, part in enumerate(parts):
        for draw in range(part):
            earliest = -(-(1 + twice * draw) * period // (twice * part)) - 1
            begins[earliest].append(((twice * (draw + 1) - 1) * (multiple // part), number))
    found = np.empty(period, np.int32)
    waiting: list[tuple[int, int]] = []
    for position, begun in enumerate(begins):
        for each in begun:
            heapq.heappush(waiting, each)
        found[position] = heapq.heappop(waiting)[1]
    return found


def seed_of_set(seed: int, number: int) -> int:
    """Return the seed of the own order of a set."""
    return int(key_of(Purpose.MIXTURE, seed, number)[0] >> np.uint64(1))


class MixedOrder:
    """The order of a run over several sets of records, whose ordinals follow each other. An ``Order``."""

    blocks: Blocks | None = None

    def __init__(
        self,
        orders: Sequence[TrainingOrder],
        parts: Sequence[int],
        *,
        seed: int,
        end: MixtureEnd | int = "first",
        class_weights: WeightRule | None = None,
        labels: npt.NDArray[np.integer] | None = None,
    ) -> None:
        """Fix the order.

        Args:
            orders: the own endless order of each set, by record, with its own seed (``seed_of_set``).
            parts: how many of ``sum(parts)`` positions each set has.
            seed: the seed of the run.
            end: an epoch ends when the first set is through, when the last is, or after so many steps.
            class_weights: the weights of the classes in the loss; None: all examples have the same weight.
            labels: int [N], the label of each record of all sets by ordinal, for ``class_weights``.
        """
        assert len(orders) == len(parts) > 1
        assert all(order.blocks is None for order in orders), "windows are read in one order"
        self.seed = seed
        self.global_batch_size = orders[0].global_batch_size
        self._orders = orders
        self._sizes = np.array([order.num_records for order in orders], np.int64)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._deal = Deal(parts)
        self.steps_per_epoch = self._steps(end)
        self.num_records = self.steps_per_epoch * self.global_batch_size
        self._labels = labels
        self.class_weights = None if class_weights is None else self._class_weights(class_weights)

    def _steps(self, end: MixtureEnd | int) -> int:
        if not isinstance(end, str):
            return end
        through = [self._deal.position(k, size - 1) + 1 for k, size in enumerate(self._sizes.tolist())]
        positions = min(through) if end == "first" else max(through)
        return -(-positions // self.global_batch_size)

    def _class_weights(self, rule: WeightRule) -> Floats:
        """Return the weight of each class, by its records in all sets and the draws from them."""
        counts, draws = np.zeros((2, max(order.records_per_class.size for order in self._orders)))
        for order, part in zip(self._orders, self._deal.parts, strict=True):
            known = slice(order.records_per_class.size)
            counts[known] += order.records_per_class
            draws[known] += order.draws_per_class * (part / self._deal.period / order.num_records)
        return rule(counts.astype(np.int64), draws * counts.sum())

    def step(self, epoch: int, step: int) -> StepPlan:
        """Return the examples of a step."""
        if not 0 <= step < self.steps_per_epoch:
            raise IndexError(f"step {step} of an epoch of {self.steps_per_epoch} steps")
        batch = self.global_batch_size
        within = np.arange(step * batch, (step + 1) * batch, dtype=np.int64)
        sets, draws = self._deal.at(epoch * self.num_records + within)
        ordinals = np.empty(batch, np.int64)
        for number, order in enumerate(self._orders):
            rows = np.flatnonzero(sets == number)
            if rows.size:
                first = int(draws[rows[0]])
                ordinals[rows] = self._starts[number] + _draws(order, first, first + rows.size)
        each = np.ones(batch)
        if self.class_weights is not None and self._labels is not None:
            each = self.class_weights[self._labels[ordinals]]
        weights = (each / each.sum()).astype(np.float32)
        return StepPlan(self.seed, epoch, step, within, ordinals, batch, weights)


def _draws(order: TrainingOrder, start: int, stop: int) -> Ints:
    """Return the records of the draws ``start`` to ``stop`` of a set, which go on from epoch to epoch."""
    size = order.num_records
    parts = []
    while start < stop:
        epoch, first = divmod(start, size)
        last = min(size, first + stop - start)
        parts.append(order.between(epoch, first, last))
        start += last - first
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
