"""Repeat factors of images with several labels: the formula of LVIS, and pinned values of the order."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmill.infra.errors import ConfigError
from shardmill.infra.format.known_features import NO_CLASS
from shardmill.training.config.data import DataSettings
from shardmill.training.order import TrainingOrder, order_from_settings
from shardmill.training.order.balance.rules import by_leading_label
from shardmill.training.reading import SplitTable
from shardmill.training.reading.records.columns import SetLabels, Targets
from tests.samples.datasets.orders import SEEDS, epoch_of, table_of

ANY_SETS = st.lists(st.sets(st.integers(0, 5)).map(sorted), min_size=1, max_size=40)


def sets_of(records: list[list[int]], num_classes: int = 6) -> SetLabels:
    starts = np.cumsum([0, *map(len, records)])
    return SetLabels(starts, np.array([label for one in records for label in one], np.int32), num_classes)


def factors_of_records(records: list[list[int]], threshold: float) -> list[float]:
    """The formula of the paper, record by record."""
    share = {label: sum(label in one for one in records) / len(records) for label in range(6)}
    return [max([1.0, *(math.sqrt(threshold / share[label]) for label in one)]) for one in records]


def table_with(labels: SetLabels | Targets, num_records: int) -> SplitTable:
    return replace(table_of(np.full(num_records, NO_CLASS, np.int32)), labels=labels)


def order_of(records: list[list[int]], threshold: float, seed: int = 0, **settings: Any) -> TrainingOrder:
    data = DataSettings(
        balance="repeat-factor", balance_threshold=threshold, seed=seed, global_batch_size=5, **settings
    )
    return order_from_settings(data, table_with(sets_of(records), len(records)), list("abcdef"))


@pytest.mark.parametrize(
    ("records", "threshold", "leading", "draws"),
    [
        # Shares 3/4 and 1/4; factors 1 and sqrt(2): the rare label leads, also beside the common one.
        ([[0], [0], [0, 1], []], 0.5, [6, 6, 1, 6], [0, 1, 0, 0, 0, 0, 3]),
        ([[0], [0], [0, 1], []], 0.25, [6, 6, 6, 6], [0, 0, 0, 0, 0, 0, 4]),  # no label is below the share
        ([[], []], 1.0, [6, 6], [0, 0, 0, 0, 0, 0, 2]),
        ([[2, 4], [2, 4], [], []], 0.9, [2, 2, 6, 6], [0, 0, 2, 0, 0, 0, 2]),  # equal shares: the lower label
        # 8 records of factor 1 and one of factor 3: 6.5 and 2.5 of 9.
        ([[0]] * 8 + [[0, 5]], 1.0, [6] * 8 + [5], [0, 0, 0, 0, 0, 2, 7]),
    ],
)
def test_leading_labels(
    records: list[list[int]], threshold: float, leading: list[int], draws: list[int]
) -> None:
    found, rule = by_leading_label(sets_of(records), threshold)
    assert found.tolist() == leading
    assert rule(np.bincount(found, minlength=7)).tolist() == draws


@given(ANY_SETS, st.floats(0.01, 1.0), SEEDS)
def test_records_come_in_proportion_to_their_largest_factor(
    records: list[list[int]], threshold: float, seed: int
) -> None:
    order = order_of(records, threshold, seed)
    factors = np.array(factors_of_records(records, threshold))
    wanted = factors / factors.sum() * len(records)
    found = np.bincount(epoch_of(order, 3), minlength=len(records))
    assert found.sum() == len(records)
    for factor in np.unique(factors.round(9)):
        alike = factors.round(9) == factor
        assert found[alike].max() - found[alike].min() <= 2  # drawn by up to several labels of one share
        assert abs(found[alike].sum() - wanted[alike].sum()) < 7  # each class is within one draw


@given(ANY_SETS)
def test_without_rare_labels_each_record_comes_once(records: list[list[int]]) -> None:
    assert sorted(epoch_of(order_of(records, 1e-9), 0).tolist()) == list(range(len(records)))


def test_known_order() -> None:
    """The values are part of the order, which never changes."""
    records = [[0], [0, 1], [0], [0, 2], [], [0, 1, 2], [0], [0], [0], [0]]
    assert epoch_of(order_of(records, 0.9), 0).tolist() == [3, 4, 1, 0, 5, 5, 3, 2, 8, 9]
    assert epoch_of(order_of(records, 0.9, seed=9), 5).tolist() == [7, 5, 3, 1, 9, 5, 2, 3, 4, 8]


@pytest.mark.parametrize(
    ("settings", "told", "remedy"),
    [
        ({"balance": "uniform"}, "needs one class an image", "choose 'repeat-factor'"),
        ({"balance": "weights", "balance_weights": {"x": 2}}, "needs one class an image", "repeat-factor"),
        ({"class_weights": "balanced"}, "data.class_weights = 'balanced' needs one class", "'none'"),
    ],
)
def test_other_balance_is_refused(settings: dict[str, Any], told: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        order_from_settings(DataSettings(**settings), table_with(sets_of([[0]]), 1), list("abcdef"))
    assert remedy in str(error.value.remedy)


def test_numbers_have_no_factors() -> None:
    table = table_with(Targets(np.zeros((3, 1), np.float32)), 3)
    with pytest.raises(ConfigError, match="needs one class an image") as error:
        order_from_settings(DataSettings(balance="repeat-factor"), table, [])
    assert "repeat-factor" not in str(error.value.remedy)
