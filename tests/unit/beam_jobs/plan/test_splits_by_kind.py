"""Stratification of records with several labels or with numbers: complete, even, and in no order's debt."""

from __future__ import annotations

from itertools import chain

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmill.beam_jobs.plan.splits import assign_splits
from shardmill.beam_jobs.plan.splits_by_kind import Strata, assign_by_strata, quantile_bins

FRACTIONS = (0.8, 0.1, 0.1)
Sets = list[list[int]]


def strata_of(sets: Sets, num_classes: int) -> Strata:
    lengths = np.array([len(labels) for labels in sets], np.int64)
    return Strata.of_labels(lengths, np.array([*chain(*sets)], np.int64), num_classes)


def ranks_of(count: int, seed: int = 0) -> npt.NDArray[np.uint64]:
    return np.random.default_rng(seed).permutation(count).astype(np.uint64)


def assign(sets: Sets, num_classes: int = 4, **more: object) -> npt.NDArray[np.int8]:
    none = np.full(len(sets), -1, np.int8)
    given_splits = more.pop("given", none)
    ranks = more.pop("ranks", ranks_of(len(sets)))
    return assign_by_strata(given_splits, strata_of(sets, num_classes), ranks, FRACTIONS, **more)  # type: ignore[arg-type]


SETS = st.lists(st.lists(st.integers(0, 3), unique=True, max_size=4).map(sorted), max_size=40)


@given(sets=SETS, seed=st.integers(0, 9))
@settings(max_examples=60)
def test_every_record_gets_a_split_whatever_the_order_of_the_records(sets: Sets, seed: int) -> None:
    splits = assign(sets)
    assert set(splits.tolist()) <= {0, 1, 2}
    order = np.random.default_rng(seed).permutation(len(sets))
    again = assign([sets[at] for at in order], ranks=ranks_of(len(sets))[order])
    assert again.tolist() == splits[order].tolist()


@given(labels=st.lists(st.integers(0, 3), max_size=60))
@settings(max_examples=60)
def test_with_one_label_each_class_is_within_one_of_its_fraction(labels: list[int]) -> None:
    splits = assign([[label] for label in labels])
    for label in set(labels):
        chosen = splits[np.array(labels) == label]
        for split, fraction in enumerate(FRACTIONS):
            assert abs((chosen == split).sum() - fraction * len(chosen)) <= 1 + 1e-6


def test_many_labels_are_divided_far_more_evenly_than_by_chance() -> None:
    draw = np.random.default_rng(1)
    likely = np.array([0.5, 0.2, 0.05, 0.02, 0.01])
    sets = [np.flatnonzero(row).tolist() for row in draw.random((2000, 5)) < likely]

    def unevenness(splits: npt.NDArray[np.int8]) -> float:
        total = 0.0
        for label in range(5):
            has = np.array([label in labels for labels in sets])
            counts = np.bincount(splits[has], minlength=3)
            total += float(np.abs(counts - has.sum() * np.asarray(FRACTIONS)).max())
        return total

    splits = assign(sets, 5)
    plain = assign_splits(np.full(2000, -1, np.int8), np.zeros(2000, np.int32), ranks_of(2000), FRACTIONS)
    assert unevenness(splits) < 5, "less than one record a label"
    assert unevenness(plain) > 3 * unevenness(splits)
    assert np.abs(np.bincount(splits, minlength=3) - 2000 * np.asarray(FRACTIONS)).max() <= 10


def test_given_and_previous_splits_stay_and_units_stay_together() -> None:
    sets = [[at % 4] if at % 5 else [] for at in range(60)]
    given_splits = np.full(60, -1, np.int8)
    given_splits[:4] = 2
    previous = np.full(60, -1, np.int8)
    previous[4:8] = 1
    units = np.arange(60, dtype=np.int32)
    units[20:26] = 20
    units[5:7] = units[5]
    units[40:43] = units[3]  # one of them is given to test
    splits = assign(sets, given=given_splits, previous=previous, units=units)
    assert splits[:4].tolist() == [2] * 4
    assert splits[4:8].tolist() == [1] * 4
    assert len(set(splits[20:26].tolist())) == 1
    assert splits[40:43].tolist() == [2] * 3


def test_targets_are_divided_by_their_tenths() -> None:
    values = np.random.default_rng(2).exponential(size=(500, 2)).astype(np.float32)
    strata = Strata.of_targets(values)
    splits = assign_by_strata(np.full(500, -1, np.int8), strata, ranks_of(500), FRACTIONS)
    bins = quantile_bins(values)
    for column in range(2):
        in_train = np.bincount(bins[splits == 0, column], minlength=10)
        assert in_train.min() >= 38
        assert in_train.max() <= 42


@pytest.mark.parametrize(
    ("values", "bins"),
    [([0.0] * 20, [9] * 20), (list(map(float, range(10))), list(range(10))), ([], [])],
)
def test_equal_values_share_a_bin(values: list[float], bins: list[int]) -> None:
    found = quantile_bins(np.array(values, np.float32).reshape(-1, 1))
    assert found[:, 0].tolist() == bins
