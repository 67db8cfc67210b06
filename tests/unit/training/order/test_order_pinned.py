"""The values of the order. They are its definition: if one changes, no run can be resumed or repeated."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from shardmill.training.order import BlockSizes, TrainingOrder
from shardmill.training.order.balance.rules import (
    RULES,
    Rule,
    by_weights,
    effective_number,
    repeat_factor,
    sqrt,
    uniform,
)
from tests.samples.datasets.orders import epoch_of

# By (seed, epoch).
KNOWN_NATURAL = {
    (0, 0): [1, 4, 5, 9, 2, 10, 8, 6, 11, 3, 7, 0],
    (0, 1): [2, 1, 3, 9, 8, 5, 4, 6, 0, 7, 11, 10],
    (1099511627776, 3): [2, 6, 9, 0, 11, 1, 5, 8, 3, 4, 10, 7],
}
KNOWN_UNIFORM = {
    (0, 0): [11, 10, 0, 7, 9, 11, 11, 1, 8, 11, 4, 9],
    (0, 1): [9, 11, 6, 8, 5, 11, 11, 3, 10, 11, 8, 2],
    (9, 5): [9, 5, 11, 3, 11, 8, 11, 7, 10, 9, 11, 4],
}
# By rule: its draws, and the order by (seed, epoch).
KNOWN_BALANCED: dict[str, tuple[Rule, list[int], dict[tuple[int, int], list[int]]]] = {
    "sqrt": (
        sqrt,
        [6, 4, 2],
        {
            (0, 0): [1, 9, 3, 11, 7, 10, 4, 5, 8, 11, 0, 9],
            (9, 5): [11, 2, 0, 7, 9, 8, 11, 9, 6, 1, 10, 5],
        },
    ),
    "effective-number": (
        partial(effective_number, beta=0.8),
        [6, 3, 3],
        {
            (0, 0): [10, 7, 3, 11, 1, 4, 11, 9, 8, 5, 11, 0],
            (9, 5): [11, 2, 8, 7, 0, 11, 5, 10, 11, 6, 1, 9],
        },
    ),
    "repeat-factor": (
        partial(repeat_factor, threshold=0.3),
        [7, 3, 2],
        {(0, 0): [1, 10, 3, 11, 7, 4, 5, 2, 9, 11, 0, 8], (9, 5): [11, 6, 5, 2, 3, 8, 11, 9, 7, 4, 10, 1]},
    ),
    "weights": (
        partial(by_weights, weights=np.array([1.0, 2.0, 0.0])),
        [4, 8, 0],
        {
            (0, 0): [10, 7, 0, 9, 1, 8, 10, 8, 8, 4, 9, 9],
            (9, 5): [9, 5, 10, 3, 7, 9, 8, 8, 10, 4, 10, 9],
        },
    ),
}
# By (block_records, window_blocks), of shards of 5 and 7 records: the order by (seed, epoch).
KNOWN_BLOCKS = {
    (3, 2): {
        (0, 0): [8, 7, 1, 0, 2, 4, 3, 5, 9, 6, 11, 10],
        (9, 5): [10, 9, 11, 1, 5, 6, 0, 8, 4, 2, 3, 7],
    },
    (1, 4): {
        (0, 0): [10, 8, 11, 2, 5, 6, 4, 7, 3, 9, 0, 1],
        (9, 5): [3, 6, 7, 2, 9, 1, 11, 4, 8, 10, 0, 5],
    },
    (12, 1): {
        (0, 0): [6, 10, 7, 8, 11, 9, 5, 1, 0, 2, 4, 3],
        (9, 5): [8, 5, 7, 10, 6, 11, 9, 3, 0, 4, 2, 1],
    },
}
# The first four records of the first and the last step.
KNOWN_LARGE = [[859652, 795757, 576731, 486607], [255189, 472554, 588615, 859652]]
KNOWN_LARGE_BLOCKS = [[828161, 553857, 463926, 540721], [679631, 193273, 355170, 828161]]
# Draws of classes of 100,000, 20,000, 3,000 and 40 records.
KNOWN_DRAWS = {
    "natural": [100000, 20000, 3000, 40],
    "uniform": [30760, 30760, 30760, 30760],
    "sqrt": [75005, 33544, 12991, 1500],
    "effective-number": [85018, 19664, 9840, 8518],
    "repeat-factor": [99976, 19995, 2999, 70],
}
LABELS = np.array([0] * 8 + [1] * 3 + [2], np.int32)


@pytest.mark.parametrize(("seed", "epoch"), sorted(KNOWN_NATURAL))
def test_known_natural_order(seed: int, epoch: int) -> None:
    order = TrainingOrder(np.zeros(12, np.int32), seed=seed, global_batch_size=5)
    assert epoch_of(order, epoch).tolist() == KNOWN_NATURAL[seed, epoch]


@pytest.mark.parametrize(("seed", "epoch"), sorted(KNOWN_UNIFORM))
def test_known_uniform_order(seed: int, epoch: int) -> None:
    order = TrainingOrder(LABELS, seed=seed, global_batch_size=5, balance=uniform)
    assert epoch_of(order, epoch).tolist() == KNOWN_UNIFORM[seed, epoch]


@pytest.mark.parametrize("name", sorted(KNOWN_BALANCED))
def test_known_balanced_order(name: str) -> None:
    rule, draws, orders = KNOWN_BALANCED[name]
    for (seed, epoch), known in orders.items():
        order = TrainingOrder(LABELS, seed=seed, global_batch_size=5, balance=rule)
        assert order.draws_per_class.tolist() == draws
        assert epoch_of(order, epoch).tolist() == known


@pytest.mark.parametrize("name", sorted(RULES))
def test_known_draws(name: str) -> None:
    assert RULES[name](np.array([100_000, 20_000, 3_000, 40])).tolist() == KNOWN_DRAWS[name]


@pytest.mark.parametrize("sizes", sorted(KNOWN_BLOCKS))
def test_known_order_by_block(sizes: tuple[int, int]) -> None:
    for (seed, epoch), known in KNOWN_BLOCKS[sizes].items():
        order = TrainingOrder(
            LABELS, seed=seed, global_batch_size=5, blocks=BlockSizes(*sizes), shard_sizes=np.array([5, 7])
        )
        assert epoch_of(order, epoch).tolist() == known


def test_known_places_in_a_large_epoch() -> None:
    labels, shards = np.zeros(1_000_003, np.int8), np.array([500_000, 500_003])
    by_record = TrainingOrder(labels, seed=7, global_batch_size=64)
    by_block = TrainingOrder(
        labels, seed=7, global_batch_size=64, blocks=BlockSizes(32, 256), shard_sizes=shards
    )
    for order, known in ((by_record, KNOWN_LARGE), (by_block, KNOWN_LARGE_BLOCKS)):
        ends = [order.step(2, step).ordinals[:4].tolist() for step in (0, order.steps_per_epoch - 1)]
        assert ends == known
