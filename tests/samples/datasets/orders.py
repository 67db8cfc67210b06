"""Random tables of records and the orders over them, for property tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shardmill.training.order import BlockSizes, TrainingOrder
from shardmill.training.order.balance.class_weights import WEIGHT_RULES
from shardmill.training.order.balance.rules import RULES
from shardmill.training.reading import SplitTable

SEEDS = st.integers(0, 2**63 - 1)
CLASS_COUNTS = st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any)


def labels_of(counts: list[int], seed: int = 0) -> np.ndarray:
    """Labels with these counts, in an order that is not sorted by class."""
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts)).astype(np.int32)


def epoch_of(order: TrainingOrder, epoch: int) -> np.ndarray:
    """The real ordinals of an epoch, step by step."""
    plans = [order.step(epoch, step) for step in range(order.steps_per_epoch)]
    return np.concatenate([plan.ordinals[: plan.num_real] for plan in plans])


def table_of(labels: np.ndarray, shard_sizes: list[int] | None = None) -> SplitTable:
    """A table of records with these labels; all in one shard where no sizes of shards are given."""
    sizes = shard_sizes or [labels.size]
    paths = tuple(f"shard-{number}" for number in range(len(sizes)))
    shard = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    zeros = np.zeros(labels.size, np.int64)
    return SplitTable("train", paths, shard, zeros, zeros, labels, shard, shard, zeros.astype(np.uint64))


@dataclass(frozen=True)
class AnyOrder:
    """The arguments of an order; ``make`` makes it anew, as another process would."""

    labels: np.ndarray
    arguments: dict[str, Any]

    def make(self) -> TrainingOrder:
        """The order."""
        return TrainingOrder(self.labels, **self.arguments)


@st.composite
def any_order(draw: st.DrawFn) -> AnyOrder:
    """An order of any kind: each balance rule, by record and by block, with class weights and without."""
    labels = labels_of(draw(CLASS_COUNTS))
    arguments: dict[str, Any] = {
        "seed": draw(SEEDS),
        "global_batch_size": draw(st.integers(1, 50)),
        "class_weights": draw(st.sampled_from([None, *WEIGHT_RULES.values()])),
    }
    if draw(st.booleans()):
        arguments["blocks"] = BlockSizes(draw(st.integers(1, 30)), draw(st.integers(1, 30)))
        arguments["shard_sizes"] = draw(shard_sizes(labels.size))
    else:
        arguments["balance"] = draw(st.sampled_from([*RULES.values()]))
    if labels.size >= arguments["global_batch_size"]:
        arguments["last_batch"] = draw(st.sampled_from(["pad", "drop"]))
    return AnyOrder(labels, arguments)


@st.composite
def shard_sizes(draw: st.DrawFn, num_records: int) -> np.ndarray:
    """``num_records`` cut into shards, some of which may be empty."""
    cuts = sorted(draw(st.lists(st.integers(0, num_records), max_size=6)))
    return np.diff([0, *cuts, num_records])
