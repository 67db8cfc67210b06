"""Near-duplicates by vectors: against comparing all pairs exactly, at limits, and beside those by looks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmill.beam_jobs.config import GroupsConfig
from shardmill.beam_jobs.plan.similarity.vectors import (
    MAX_VECTORS,
    RecordsToCompare,
    find_alike,
    find_by_looks_and_vectors,
)
from shardmill.beam_jobs.tables.vectors import MAX_DIMENSIONS, Float32, Int64, Vectors, dots, rounded
from shardmill.infra.codecs.measures import looks
from shardmill.infra.errors import ConfigError
from shardmill.infra.similarity.connected import Components
from tests.samples.images.photos import picture


def clustered(seed: int, count: int, dimensions: int, noise: float) -> Float32:
    """Vectors around a few directions, of very different lengths: float32 [count, dimensions]."""
    rng = np.random.default_rng(seed)
    middles = rng.normal(size=(max(1, count // 4), dimensions))
    found = middles[rng.integers(0, len(middles), count)] + noise * rng.normal(size=(count, dimensions))
    return (found * 10.0 ** rng.integers(-6, 6, (count, 1))).astype(np.float32)


def brute_force(values: Float32, least: float) -> Int64:
    """The smallest vector that each is connected with: cosines in whole numbers of any length."""
    whole = [[int(value) for value in row] for row in rounded(values).tolist()]
    squares = [sum(value * value for value in row) for row in whole]
    components = Components(len(values))
    for at, one in enumerate(whole):
        for to in range(at):
            product = sum(a * b for a, b in zip(one, whole[to], strict=True))
            if product / np.sqrt(float(squares[at]) * float(squares[to])) >= least:
                components.connect(np.array([at]), np.array([to]))
    return components.root.astype(np.int64)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 30),
    st.integers(2, 9),
    st.sampled_from([0, 0.05, 0.3]),
    st.floats(0.5, 1),
)
def test_the_groups_are_those_of_all_pairs(
    seed: int, count: int, dimensions: int, noise: float, least: float
) -> None:
    values = clustered(seed, count, dimensions, noise)
    assert find_alike(values, least).component.tolist() == brute_force(values, least).tolist()


def test_pairs_are_found_across_blocks() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(11_000, 24)).astype(np.float32)
    pairs = np.array([[3, 10_999], [1_023, 1_024], [1_030, 9_300], [2_050, 2_060], [0, 8_191]])
    values[pairs[:, 1]] = 1e4 * values[pairs[:, 0]]
    found = find_alike(values, 0.999)
    expected = np.arange(len(values))
    expected[pairs[:, 1]] = pairs[:, 0]
    assert found.component.tolist() == expected.tolist()
    assert (found.apart[pairs.ravel()] < 1e-9).all()
    assert np.isinf(np.delete(found.apart, pairs.ravel())).all()


def test_many_equal_vectors_are_one_group_without_comparing_all() -> None:
    values = np.tile(np.array([[1, 2, 3]], np.float32), (40_000, 1))
    values[20_000:] *= -1
    assert np.array_equal(find_alike(values, 0.9).component, np.repeat([0, 20_000], 20_000))


def test_too_many_vectors_are_refused() -> None:
    with pytest.raises(ConfigError, match="compares all pairs of vectors, and there are 250,001") as caught:
        find_alike(np.ones((MAX_VECTORS + 1, 2), np.float32), 0.9)
    assert "group" in str(caught.value.remedy)


def test_products_are_exact_at_the_limits() -> None:
    values = np.full((2, MAX_DIMENSIONS), np.float32(1.9999999), np.float32)
    values[1, ::2] = 1e-38
    whole = rounded(values)
    exact = sum(int(a) * int(b) for a, b in zip(whole[0].tolist(), whole[0].tolist(), strict=True))
    assert dots(whole[:1], whole[:1])[0] == exact
    assert np.abs(whole).max() == 1 << 20
    assert rounded(np.array([[1e-45, -1e-45]], np.float32)).any()


def records(count: int) -> RecordsToCompare:
    """Records that look different, apart from the first two, which look the same."""
    thumbnails = np.stack([picture(max(1, seed), 32, 32)[..., 0] for seed in range(count)])
    return RecordsToCompare(
        pa.chunked_array([pa.array(looks(thumbnails), pa.binary())]),
        np.arange(count, dtype=np.uint64),
        pa.chunked_array([[f"{at}.jpg" for at in range(count)]]),
    )


def vectors(angles: dict[str, float], key: str = "uri") -> Vectors:
    values = [[np.cos(angle), np.sin(angle)] for angle in angles.values()]
    keys = pa.array(list(angles), pa.string())
    return Vectors("id" if key == "id" else "uri", keys, np.array(values, np.float32))


def groups_of(config: dict[str, object], given: Vectors) -> tuple[list[set[int]], list[int], int]:
    near = find_by_looks_and_vectors(records(6), GroupsConfig.model_validate(config), given)
    assert near.found is not None
    groups = near.found.groups
    members = [set(groups.records[groups.groups == at].tolist()) for at in range(groups.count)]
    return members, near.found.distance.tolist(), near.num_without_vector


def test_groups_by_looks_and_by_vectors_are_joined() -> None:
    given = vectors({"1.jpg": 0, "3.jpg": 0.1, "4.jpg": 1.5, "5.jpg": 2.0, "other.jpg": 0.05})
    members, distance, without = groups_of({"embeddings": {"min_similarity": 0.85}}, given)
    assert members == [{0, 1, 3}, {4, 5}]
    assert distance == [0, 0, 5, 122, 122]  # thousandths: 1 - cos 0.1, 1 - cos 0.5
    assert without == 2


def test_vectors_serve_without_looks_and_by_id() -> None:
    by_id = vectors({f"{1:016x}": 0, f"{2:016x}": 1.0, "ffffffffffffffff": 0}, "id")
    members, distance, without = groups_of(
        {"near_duplicates": False, "embeddings": {"min_similarity": 0.5}}, by_id
    )
    assert (members, distance, without) == ([{1, 2}], [127, 127], 4)


def test_vectors_of_other_images_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"none of the 1 vectors .* belongs to a record; .* uri 'x/0.jpg'"):
        groups_of({}, vectors({"x/0.jpg": 0}))
