"""Near-duplicates: which copies are found, the search against comparing all, and the groups it gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from shardmill.beam_jobs.config import GroupsConfig
from shardmill.beam_jobs.plan.similarity.near_duplicates import NearDuplicates, find_near_duplicates
from shardmill.infra.codecs import Pixels
from shardmill.infra.codecs.measures import looks
from shardmill.infra.similarity import connected, search
from shardmill.infra.similarity.connected import Components
from shardmill.infra.similarity.looks import (
    SYMMETRIES,
    WINDOWS,
    coefficients,
    hash_all,
    hashes,
    turned,
    windowed,
)
from shardmill.infra.similarity.search import candidates, choices
from tests.samples.datasets.published import look_of
from tests.samples.images.photos import picture

HASH = st.integers(0, 2**64 - 1)


def find(found: list[bytes | None], **groups: object) -> NearDuplicates:
    config = GroupsConfig.model_validate(groups)
    return find_near_duplicates(pa.chunked_array([pa.array(found, pa.binary())]), config)


def members(found: NearDuplicates) -> list[set[int]]:
    return [set(found.groups.records[found.groups.groups == at].tolist()) for at in range(found.groups.count)]


def scene(seed: int) -> Pixels:
    """A picture with coarse and fine structure as a photograph has: uint8 [200, 240, 3]."""
    mixed = np.full((200, 240, 3), 128.0)
    for octave, (height, width, share) in enumerate(((32, 40, 0.6), (64, 72, 0.35), (120, 136, 0.2))):
        part = Image.fromarray(picture(seed + 100 * octave, height, width))
        mixed += share * (np.asarray(part.resize((240, 200), Image.Resampling.BICUBIC), float) - 128)
    return np.clip(mixed, 0, 255).astype(np.uint8)


PICTURES = [scene(seed) for seed in range(30)]
LOOKS = [look_of(one) for one in PICTURES]


def cut(top: int, bottom: int, left: int, right: int) -> Callable[[Pixels], Pixels]:
    """Cut off so many hundredths of the sides."""

    def changed(pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        rows = slice(height * top // 100, height - height * bottom // 100)
        return pixels[rows, width * left // 100 : width - width * right // 100]

    return changed


def framed(share: float, colour: tuple[int, int, int]) -> Callable[[Pixels], Pixels]:
    """Put a border around an image."""

    def changed(pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        down, across = round(share * height), round(share * width)
        canvas = np.full((height + 2 * down, width + 2 * across, 3), colour, np.uint8)
        canvas[down : down + height, across : across + width] = pixels
        return canvas

    return changed


def small(pixels: Pixels) -> Pixels:
    """Scale an image to less than half."""
    return np.asarray(Image.fromarray(pixels).resize((99, 83), Image.Resampling.LANCZOS))


SAME = {
    "scaled": small,
    "darker": lambda pixels: (pixels * 0.7).astype(np.uint8),
    "noisy": lambda pixels: np.clip(
        pixels + np.random.default_rng(0).integers(-6, 7, pixels.shape), 0, 255
    ).astype(np.uint8),
}
TURNED = {
    "mirrored": lambda pixels: pixels[:, ::-1],
    "upside down": lambda pixels: pixels[::-1],
    "by 90°": lambda pixels: np.rot90(pixels),
    "by 180°": lambda pixels: np.rot90(pixels, 2),
    "by 270°, scaled": lambda pixels: small(np.rot90(pixels, 3)),
    "transposed": lambda pixels: pixels.transpose(1, 0, 2),
}
CUT = {
    "5 % at each side": cut(5, 5, 5, 5),
    "2 % at each side": cut(2, 2, 2, 2),
    "at the left": cut(0, 0, 5, 0),
    "at a corner": cut(0, 5, 0, 5),
    "anywhere": cut(1, 4, 3, 2),
    "and mirrored": lambda pixels: cut(5, 5, 5, 5)(pixels)[:, ::-1],
}
FRAMED = {
    "thin": framed(0.02, (0, 0, 0)),
    "white": framed(0.05, (255, 255, 255)),
    "red": framed(0.08, (200, 30, 40)),
    "and turned": lambda pixels: np.rot90(framed(0.05, (255, 255, 255))(pixels)),
}


@pytest.mark.parametrize(
    ("change", "groups", "least"),
    [
        *((change, {}, 30) for change in (*SAME.values(), *TURNED.values(), *FRAMED.values())),
        *((change, {}, 29) for change in CUT.values()),
        *((change, {"symmetries": False, "crops": False}, 30) for change in SAME.values()),
    ],
    ids=[*SAME, *TURNED, *FRAMED, *CUT, *(f"{name}, plain search" for name in SAME)],
)
def test_copies_are_found_and_nothing_else(
    change: Callable[[Pixels], Pixels], groups: dict[str, object], least: int
) -> None:
    copies = [look_of(np.ascontiguousarray(change(one))) for one in PICTURES]
    found = members(find([*LOOKS, *copies], **groups))
    assert all(pair == {min(pair), min(pair) + 30} for pair in found)
    assert len(found) >= least


def test_settings_leave_out_kinds_of_copies() -> None:
    mirrored = [look_of(np.ascontiguousarray(one[:, ::-1])) for one in PICTURES]
    assert not members(find([*LOOKS, *mirrored], symmetries=False))
    cropped = [look_of(np.ascontiguousarray(CUT["5 % at each side"](one))) for one in PICTURES]
    assert not members(find([*LOOKS, *cropped], crops=False))
    noisy = [look_of(SAME["noisy"](one)) for one in PICTURES]
    assert not members(find([*LOOKS, *noisy], max_difference=0))


def test_digits_do_not_grow_into_one_group() -> None:
    digits = pytest.importorskip("sklearn.datasets").load_digits().images
    enlarged = [Image.fromarray((one * 15.9).astype(np.uint8)).resize((32, 32)) for one in digits[:400]]
    found = find(looks(np.stack([np.asarray(one) for one in enlarged])))
    sizes = sorted(Counter(found.groups.groups.tolist()).values())
    assert not sizes or sizes[-1] <= 12


def test_nulls_are_in_no_group_and_the_same_look_is_at_distance_zero() -> None:
    one, other = LOOKS[:2]
    found = find([None, one, other, one, None, look_of(SAME["noisy"](PICTURES[0]))])
    assert members(found) == [{1, 3, 5}]
    distances = dict(zip(found.groups.records.tolist(), found.distance.tolist(), strict=True))
    assert distances[1] == distances[3] == 0
    assert find([None, None]).groups.count == find([]).groups.count == 0


def test_the_order_of_images_does_not_matter() -> None:
    copies = [look_of(np.ascontiguousarray(CUT["anywhere"](one))) for one in PICTURES[:10]]
    every = [*LOOKS, *copies]
    order = np.random.default_rng(5).permutation(len(every))
    shuffled = members(find([every[at] for at in order]))
    assert sorted(map(sorted, members(find(every)))) == sorted(
        sorted(int(order[at]) for at in group) for group in shuffled
    )


def test_hundreds_of_nearly_equal_images_take_bounded_work(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    view = np.frombuffer(LOOKS[0] or b"", np.int8)[:196]
    noise = rng.integers(-1, 2, (600, 196))
    frames = [np.clip(view + one, -127, 127).astype(np.int8).tobytes() for one in noise]
    compared = []
    plain = connected.least_difference

    def counting(values: np.ndarray, *rest: np.ndarray) -> np.ndarray:
        compared.append(len(values))
        return plain(values, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(connected, "least_difference", counting)
    found = find([*frames, LOOKS[1]])
    assert members(found) == [set(range(600))]
    assert sum(compared) < 60 * 600


def test_hashes_of_windows_are_those_of_their_coefficients() -> None:
    views = np.stack([np.frombuffer(look or b"", np.int8)[:196].reshape(14, 14) for look in LOOKS])
    of_windows, of_turned = hash_all(views, WINDOWS, SYMMETRIES)
    values = coefficients(views)
    for window, found in zip(WINDOWS, of_windows, strict=True):
        assert np.array_equal(found, hashes(windowed(values, window)))
    for symmetry, found in zip(SYMMETRIES, of_turned, strict=True):
        assert np.array_equal(found, hashes(turned(values, symmetry)))
    assert np.array_equal(of_windows[0], of_turned[0])


@st.composite
def near_hashes(draw: st.DrawFn) -> np.ndarray:
    """uint64 [N], many within a few bits of each other."""
    found = draw(st.lists(HASH, min_size=1, max_size=8))
    for base in list(found):
        for bits in draw(st.lists(st.sets(st.integers(0, 63), max_size=7), max_size=3)):
            found.append(base ^ sum(1 << bit for bit in bits))
    return np.array(found, np.uint64)


@settings(deadline=None)
@given(near_hashes(), near_hashes(), st.integers(3, 16))
def test_the_search_finds_all_within_three_bits_and_none_too_far(
    one: np.ndarray, other: np.ndarray, max_distance: int
) -> None:
    other = np.concatenate([other, one[:3]])
    found = {
        pair
        for chosen in choices()
        for parts in candidates(one[np.newaxis], other[np.newaxis], chosen, max_distance)
        for pair in zip(*(part.tolist() for part in parts), strict=True)
    }
    apart = np.bitwise_count(one[:, np.newaxis] ^ other)
    near = {(int(at), int(to)) for at, to in np.argwhere(apart <= 3)}
    assert near <= found
    assert all(apart[pair] <= max_distance for pair in found)


@settings(deadline=None)
@given(st.integers(1, 400), st.integers(0, 2**32 - 1))
def test_parts_of_the_search_find_the_same_pairs(at_a_time: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = rng.integers(0, 2**64, 300, np.uint64)
    one[100:] = one[rng.integers(0, 100, 200)] ^ (np.uint64(1) << rng.integers(0, 64, 200, np.uint64))
    rows = one.reshape(3, 100)

    def pairs() -> list[tuple[int, int]]:
        parts = candidates(rows, rows[:2], (0, 3), 4)
        return sorted(pair for part in parts for pair in zip(*(ends.tolist() for ends in part), strict=True))

    whole = pairs()
    assert whole, "some of them are near"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "HASHES_AT_A_TIME", at_a_time)
        assert pairs() == whole


@pytest.mark.parametrize("at_a_time", [2, 3, 8])
def test_a_search_in_threads_finds_the_same_pairs_in_the_same_batches(at_a_time: int) -> None:
    rng = np.random.default_rng(at_a_time)
    rows = (rng.integers(0, 40, (3, 4000), np.uint64) << np.uint64(58)) | rng.integers(0, 9, 4000, np.uint64)
    with ThreadPoolExecutor(3) as pool:
        for chosen in choices():
            whole = list(candidates(rows, rows[:2], chosen, 3))
            parts = list(candidates(rows, rows[:2], chosen, 3, at_a_time, pool.map))
            assert len(whole) > 1
            for expected, found in zip(whole, parts, strict=True):
                assert np.array_equal(expected, found)


def test_the_search_compares_with_so_many_successors_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_SUCCESSORS", 5)
    same = np.full((1, 100), 77, np.uint64)
    pairs = sum(len(at) for at, _ in candidates(same, same, choices()[0], 4))
    assert 0 < pairs <= 5 * 200


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
