"""Groups: what hangs together goes to one split, as far as given and earlier splits let it."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.encode.blocks import place_facts
from shardmill.beam_jobs.plan import Plan, PreviousRecords, plan_version
from shardmill.beam_jobs.plan.splits import assign_splits, fill_shortfalls
from shardmill.beam_jobs.publish.accounting import account
from shardmill.beam_jobs.schemas import FACTS_SCHEMA, LISTING_SCHEMA, Status
from shardmill.infra.errors import LeakError
from shardmill.infra.format.contract import NEAR_DUPLICATES_SCHEMA, SPLITS

# One file: (content, class, given split, key, looks). Equal contents are duplicates and look the same.
File = tuple[int, str, str | None, str | None, int | None]


def digest(content: int) -> bytes:
    return hashlib.sha256(str(content).encode()).digest()


def record_id(content: int) -> str:
    return digest(content).hex()[:16]


_SIGNS = np.random.default_rng(3).choice([-1, 1], (14, 14)).astype(np.int8)


def look(number: int | None) -> bytes | None:
    """A look in which each bit of a number turns the sign of a coefficient; all are equally large."""
    if number is None:
        return None
    signs = _SIGNS.copy()
    for bit in range(64):
        if number >> bit & 1:
            signs[bit // 11, bit % 11 + 1] *= -1
    return bytes((signs * 64).tobytes())


def difference_of(bits: int) -> float:
    """The largest difference of looks in which so many of the 143 used coefficients are turned."""
    return (2 * bits + 1) / 143


def plan(files: list[File], previous: PreviousRecords | None = None, **groups: Any) -> Plan:
    listing = [
        {
            "uri": f"{at:04d}",
            "size_bytes": 9,
            "mtime_ns": 1,
            "label": label,
            "split": split,
            "group": key,
            "status": Status.TO_READ,
        }
        for at, (_, label, split, key, _) in enumerate(files)
    ]
    facts = [
        {
            "sha256": digest(content),
            "status": Status.STORED,
            "offset_bytes": at,
            "stored_bytes": 50,
            "height": 4,
            "width": 5,
            "look": look(looks),
        }
        for at, (content, _, _, _, looks) in enumerate(files)
    ]
    groups.setdefault("max_difference", difference_of(2))
    config = PrepareConfig.model_validate({"groups": groups})
    placed = place_facts(pa.Table.from_pylist(facts, FACTS_SCHEMA), np.zeros(len(files), np.int32))
    return plan_version(pa.Table.from_pylist(listing, LISTING_SCHEMA), placed, config, previous)


def rows(found: Plan) -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = found.inputs.to_pylist()
    return table


def split_of(found: Plan) -> dict[str, str]:
    """Record id -> split."""
    return {row["record_id"]: row["split"] for row in rows(found) if row["outcome"] == "record"}


# Looks 0, 1, 3, 7 are a chain, 2**40 is apart from it.
LOOKS = st.sampled_from([None, None, None, 0, 1, 3, 7, 2**40, 2**50 + 2**45 + 2**41])
KEYS = st.sampled_from([None, None, "p1", "p2", "p3"])


def contents(splits: st.SearchStrategy[str | None]) -> st.SearchStrategy[list[File]]:
    """Files in which a content has one look."""
    number = st.integers(0, 50)
    file = st.tuples(number, st.sampled_from(["a", "b", "c"]), splits, KEYS, LOOKS)

    def one_look(files: list[File]) -> list[File]:
        looks: dict[int, int | None] = {}
        return [(*file[:4], looks.setdefault(file[0], file[4])) for file in files]

    return st.lists(file, max_size=60).map(one_look)


FREE = contents(st.none())
MIXED = contents(st.sampled_from([None, None, "train", "validation", "test"]))


def units(files: list[File], max_distance: int) -> list[set[str]]:
    """Ids of records that hang together, found by joining sets."""
    found = [{content} for content in {file[0] for file in files}]
    links = defaultdict(set)
    for content, _, _, key, looks in files:
        if key is not None:
            links[key].add(content)
        for other, *_, other_looks in files:
            both = looks is not None and other_looks is not None
            if both and (looks ^ other_looks).bit_count() <= max_distance:
                links[content, other] = {content, other}
    for linked in links.values():
        joined = set().union(*(one for one in found if one & linked))
        found = [one for one in found if not one & linked] + [joined]
    return [{record_id(content) for content in one} for one in found]


@settings(deadline=None)
@given(FREE, st.integers(0, 2))
def test_what_hangs_together_is_never_divided(files: list[File], max_distance: int) -> None:
    found = plan(files, max_difference=difference_of(max_distance), leakage="fail")
    splits = split_of(found)
    for unit in units(files, max_distance):
        assert len({splits[member] for member in unit}) == 1
    assert found.summary.leaks.near_duplicate_groups == found.summary.leaks.key_groups == 0


@settings(deadline=None)
@given(FREE, st.randoms())
def test_the_order_of_the_listing_does_not_matter(files: list[File], random: Any) -> None:
    files = list({file[0]: file for file in files}.values())
    shuffled = files.copy()
    random.shuffle(shuffled)
    one, two = plan(files), plan(shuffled)
    assert split_of(one) == split_of(two)
    assert one.records["id"].to_pylist() == two.records["id"].to_pylist()
    assert one.near_duplicates is not None
    assert two.near_duplicates is not None
    same = [name for name in NEAR_DUPLICATES_SCHEMA.names if name != "uri"]
    assert one.near_duplicates.select(same).equals(two.near_duplicates.select(same))


@settings(deadline=None)
@given(MIXED, FREE)
def test_given_and_earlier_splits_stand(old: list[File], new: list[File]) -> None:
    first = plan(old)
    before = split_of(first)
    pairs = sorted((int(name, 16), SPLITS.index(split)) for name, split in before.items())
    ids = np.array([one for one, _ in pairs], np.uint64)
    codes = np.array([other for _, other in pairs], np.int8)
    looks = {file[0]: file[4] for file in reversed(old)}
    more = [(*file[:4], looks.get(file[0], file[4])) for file in new]
    second = plan(old + more, PreviousRecords(ids, codes, tuple(first.classes)))
    after = split_of(second)
    assert {name: after[name] for name in before} == before
    by_uri = {row["uri"]: row for row in rows(first)}
    for at, (_, _, split, _, _) in enumerate(old):
        if split is not None and by_uri[f"{at:04d}"]["outcome"] == "record":
            assert before[by_uri[f"{at:04d}"]["record_id"]] == split


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=60), st.integers(0, 60), st.integers(0, 5))
def test_fractions_are_met_within_the_largest_group(sizes: list[int], alone: int, seed: int) -> None:
    units_of_records = np.repeat(np.arange(len(sizes)), sizes)
    first = np.searchsorted(units_of_records, units_of_records)
    count = len(first) + alone
    unit = np.concatenate([first, np.arange(len(first), count)])
    ranks = np.random.default_rng(seed).permutation(count).astype(np.uint64)
    free = np.full(count, -1, np.int8)
    fractions = (0.7, 0.2, 0.1)
    found = assign_splits(free, np.zeros(count, np.int64), ranks, fractions, units=unit)
    over = np.bincount(found, minlength=3) - np.array(fractions) * count
    assert over.max() <= max([*sizes, 1])
    if alone >= 2 * max(sizes):  # enough to even out what the groups leave
        assert np.abs(over).max() <= 1 + 1e-6


def test_the_classes_of_groups_are_balanced_too() -> None:
    # 40 patients of four images; each patient has one class.
    files: list[File] = [
        (at, "ab"[patient % 2], None, f"p{patient}", None)
        for at, patient in enumerate(np.repeat(np.arange(40), 4).tolist())
    ]
    found = plan(files)
    counted = Counter(
        (row["split"], files[int(row["uri"])][1]) for row in rows(found) if row["outcome"] == "record"
    )
    assert counted == {
        (split, label): count
        for split, count in (("train", 64), ("validation", 8), ("test", 8))
        for label in "ab"
    }


def test_new_records_fill_what_the_splits_fall_short_of() -> None:
    # 10 of one class in train; 90 more come: the splits end at 80, 10, 10.
    earlier = np.array([0] * 10 + [-1] * 90, np.int8)
    free = np.full(100, -1, np.int8)
    found = assign_splits(
        free, np.zeros(100, np.int64), np.arange(100, dtype=np.uint64), (0.8, 0.1, 0.1), earlier
    )
    assert found[:10].tolist() == [0] * 10
    assert np.bincount(found).tolist() == [80, 10, 10]


@pytest.mark.parametrize(
    ("shortfall", "count", "expected"),
    [
        ([8.0, 1.0, 1.0], 10, [8.0, 1.0, 1.0]),
        ([-20.0, 15.0, 15.0], 10, [0.0, 5.0, 5.0]),
        ([4.0, 3.0, -5.0], 2, [1.5, 0.5, 0.0]),
        ([4.0, 1.0, -3.0], 2, [2.0, 0.0, 0.0]),
        ([0.0, 0.0, 0.0], 0, [0.0, 0.0, 0.0]),
        ([-2.0, 1.0, 1.0], 0, [0.0, 0.0, 0.0]),
    ],
)
def test_fill_shortfalls(shortfall: list[float], count: int, expected: list[float]) -> None:
    assert fill_shortfalls(np.array([shortfall]), np.array([count])).tolist() == [pytest.approx(expected)]


# -- leaks ---------------------------------------------------------------------------------------------

DIVIDED: list[File] = [
    (1, "a", "train", None, 0),  # looks like 0001
    (2, "b", "test", None, 1),
    (3, "a", "train", "p1", None),
    (4, "a", "validation", "p1", None),
    (5, "a", "train", None, None),
    (1, "a", "train", None, 0),  # repeats 0000
    (6, "a", "validation", None, 2**64 - 1),
    (7, "a", "test", None, 2**64 - 1),
]


def test_leaks_are_counted_and_kept() -> None:
    found = plan(DIVIDED)
    assert found.summary.leaks.model_dump() == {
        "near_duplicate_groups": 2,
        "key_groups": 1,
        "dropped_from_train": 0,
    }
    assert account(found.inputs).num_records == 7
    assert found.near_duplicates is not None
    table = found.near_duplicates.to_pylist()
    assert found.near_duplicates.schema == NEAR_DUPLICATES_SCHEMA
    members = {(row["record_id"], row["split"], row["label"], row["distance"]) for row in table}
    assert members == {
        (record_id(1), "train", "a", 14),
        (record_id(2), "test", "b", 14),
        (record_id(6), "validation", "a", 0),
        (record_id(7), "test", "a", 0),
    }
    for row in table:
        pair = {record_id(1), record_id(2)} if row["record_id"] in {record_id(1), record_id(2)} else None
        assert row["group"] == min(pair or {record_id(6), record_id(7)})
    assert [(row["group"], row["record_id"]) for row in table] == sorted(
        (row["group"], row["record_id"]) for row in table
    )


def test_leaks_are_dropped_from_train_with_all_files_of_their_content() -> None:
    found = plan(DIVIDED, leakage="drop-from-train")
    assert found.summary.leaks.dropped_from_train == 2
    table = rows(found)
    outcomes = [row["outcome"] for row in table]
    assert outcomes == ["filtered", "record", "filtered", "record", "record", "filtered", "record", "record"]
    for at, message in {
        0: "looks the same as 0001 in test",
        2: "is of the same group, p1, as 0003 in validation",
        5: "looks the same as 0001 in test",
    }.items():
        row = table[at]
        assert (row["stage"], row["reason"], row["message"]) == ("plan", "leak", message)
        assert row["record_id"] is None
    assert found.classes == ["a", "b"]
    assert set(found.records["id"].to_pylist()) == {record_id(content) for content in (2, 4, 5, 6, 7)}
    assert found.summary.statistics.keys() == {"train", "validation", "test"}
    assert found.near_duplicates is not None
    dropped = found.near_duplicates.filter(pc.is_null(found.near_duplicates["split"]))
    assert dropped["record_id"].to_pylist() == [record_id(1)]
    assert account(found.inputs).num_filtered == 3


def test_leaks_fail_the_plan_where_none_may_be() -> None:
    with pytest.raises(LeakError) as caught:
        plan(DIVIDED, leakage="fail")
    message = str(caught.value)
    assert "3 groups are divided among the splits" in message
    assert "0000 (train) and 0001 (test) look the same" in message
    assert "0002 (train) and 0003 (validation) are of group 'p1'" in message
    assert "drop-from-train" in message
    assert caught.value.exit_code == 3
    plan(DIVIDED[4:], leakage="keep")


def test_a_class_that_was_dropped_whole_is_no_class() -> None:
    found = plan([(1, "z", "train", None, 0), (2, "a", "test", None, 0)], leakage="drop-from-train")
    assert found.classes == ["a"]
    assert found.records["label"].to_pylist() == [0]


def test_looks_are_not_asked_for_where_they_do_not_count() -> None:
    found = plan(DIVIDED, near_duplicates=False)
    assert found.near_duplicates is None
    assert (found.summary.leaks.near_duplicate_groups, found.summary.leaks.key_groups) == (0, 1)


def test_a_record_follows_those_that_it_hangs_together_with() -> None:
    files: list[File] = [(1, "a", "test", "p", None), (2, "a", None, "p", None), (3, "a", None, None, None)]
    files += [(4, "a", None, "q", None), (4, "a", "validation", None, None), (5, "a", None, "q", None)]
    splits = split_of(plan(files))
    assert splits[record_id(2)] == "test"
    # A duplicate's given split is not the record's: the first file gives none.
    assert splits[record_id(4)] == splits[record_id(5)]


@settings(deadline=None)
@given(MIXED, st.sampled_from(["keep", "drop-from-train"]))
def test_everything_adds_up_whatever_is_divided(files: list[File], leakage: str) -> None:
    found = plan(files, leakage=leakage)
    counted = account(found.inputs)
    assert counted.num_records == found.records.num_rows == sum(shard.length for shard in found.shards)
    table = rows(found)
    kept = {row["record_id"] for row in table if row["outcome"] == "record"}
    assert {row["record_id"] for row in table if row["outcome"] == "duplicate"} <= kept
    assert sum(row["outcome"] == "record" for row in table) == len(kept)
    crossing = [row["outcome"] for row in table if row["reason"] == "same_bytes_across_splits"]
    assert crossing == ["duplicate"] * found.summary.cross_split_duplicates
    if leakage == "keep":
        assert counted.num_filtered == 0
        return
    for row in table:
        assert (row["reason"] == "leak") == (row["outcome"] == "filtered")
    # No record of train has a key in common with one of another split.
    keys = defaultdict(set)
    of = {row["uri"]: row["split"] for row in table if row["outcome"] in ("record", "duplicate")}
    for at, (_, _, _, key, _) in enumerate(files):
        if key is not None and f"{at:04d}" in of:
            keys[key].add(of[f"{at:04d}"])
    assert all("train" not in splits or splits == {"train"} for splits in keys.values())
