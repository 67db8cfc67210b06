"""Near-duplicates: the search against comparing each with each, and the groups it gives."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.plan.similarity import hamming
from beam_jobs.plan.similarity.components import Components
from beam_jobs.plan.similarity.hamming import neighbourhoods
from beam_jobs.plan.similarity.near_duplicates import find_near_duplicates

HASH = st.integers(0, 2**64 - 1)


@st.composite
def near_hashes(draw: st.DrawFn) -> np.ndarray:
    """uint64 [N], rising, each once; many within a few bits of each other."""
    hashes = set(draw(st.lists(HASH, min_size=1, max_size=12)))
    for base in sorted(hashes):
        for bits in draw(st.lists(st.sets(st.integers(0, 63), max_size=9), max_size=4)):
            hashes.add(base ^ sum(1 << bit for bit in bits))
    return np.array(sorted(hashes), np.uint64)


def by_hand(hashes: np.ndarray, max_distance: int) -> tuple[list[int], list[int]]:
    """(component, nearest) of each hash, comparing each with each."""
    values = [int(value) for value in hashes]
    apart = [[(one ^ other).bit_count() for other in values] for one in values]
    component = list(range(len(values)))
    for _ in values:
        for one, row in enumerate(apart):
            component[one] = min(component[at] for at, d in enumerate(row) if d <= max_distance)
    nearest = [
        min((d for at, d in enumerate(row) if at != one and d <= max_distance), default=-1)
        for one, row in enumerate(apart)
    ]
    return component, nearest


@settings(deadline=None)
@given(near_hashes(), st.integers(0, 16))
def test_the_search_finds_just_what_comparing_all_finds(hashes: np.ndarray, max_distance: int) -> None:
    found = neighbourhoods(hashes, max_distance)
    assert (found.component.tolist(), found.nearest.tolist()) == by_hand(hashes, max_distance)


@pytest.mark.parametrize("few", [0, 10**6])
@pytest.mark.parametrize(("a_hash", "at_least"), [(200, 10**8), (0, 0)])
def test_the_way_of_searching_changes_nothing(
    few: int, a_hash: int, at_least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(7)
    base = rng.integers(0, 2**64, 8, np.uint64)
    flips = np.uint64(1) << rng.integers(0, 64, (3, 160), np.uint64)
    hashes = np.unique(np.concatenate([base, rng.choice(base, 160) ^ np.bitwise_or.reduce(flips)]))
    expected = by_hand(hashes, 4)
    monkeypatch.setattr(hamming, "_FEW_HASHES", few)
    monkeypatch.setattr(hamming, "_COMPARISONS_A_HASH", a_hash)
    monkeypatch.setattr(hamming, "_COMPARISONS", at_least)
    monkeypatch.setattr(hamming, "_PAIRS_AT_A_TIME", 100)
    found = neighbourhoods(hashes, 4)
    assert (found.component.tolist(), found.nearest.tolist()) == expected
    assert max(Counter(expected[0]).values()) > 5


@settings(deadline=None)
@given(st.integers(1, 30), st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=60))
def test_components_are_those_of_the_graph(num_nodes: int, edges: list[tuple[int, int]]) -> None:
    edges = [(one % num_nodes, other % num_nodes) for one, other in edges]
    components = Components(num_nodes)
    half = len(edges) // 2
    for part in (edges[:half], edges[half:]):
        one, other = np.array(part, np.int64).reshape(-1, 2).T
        components.connect(one, other)
    expected = list(range(num_nodes))
    for _ in range(num_nodes):
        for one, other in edges:
            expected[one] = expected[other] = min(expected[one], expected[other])
    assert components.root.tolist() == expected


def test_nulls_are_in_no_group_and_equal_hashes_at_distance_zero() -> None:
    hashes = pa.chunked_array([[None, 5, 900, 5], [None, 7, 2**64 - 1]], pa.uint64())
    found = find_near_duplicates(hashes, 1)
    assert found.groups.records.tolist() == [1, 3, 5]
    assert found.groups.groups.tolist() == [0, 0, 0]
    assert found.distance.tolist() == [0, 0, 1]
    assert find_near_duplicates(pa.chunked_array([[None, None]], pa.uint64()), 4).groups.count == 0
    assert find_near_duplicates(pa.chunked_array([], pa.uint64()), 4).groups.count == 0


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(0, 40), HASH), max_size=40), st.integers(0, 3))
def test_groups_hold_what_is_near_and_nothing_that_is_alone(
    hashes: list[int | None], max_distance: int
) -> None:
    found = find_near_duplicates(pa.chunked_array([hashes], pa.uint64()), max_distance)
    group_of = dict(zip(found.groups.records.tolist(), found.groups.groups.tolist(), strict=True))
    distance = dict(zip(found.groups.records.tolist(), found.distance.tolist(), strict=True))
    for one, value in enumerate(hashes):
        near = [
            ((value ^ other).bit_count(), at)
            for at, other in enumerate(hashes)
            if at != one and value is not None and other is not None
        ]
        near = [(bits, at) for bits, at in near if bits <= max_distance]
        assert (one in group_of) == bool(near)
        if near:
            assert distance[one] == min(near)[0]
            assert {group_of[at] for _, at in near} == {group_of[one]}
