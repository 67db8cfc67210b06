"""The plan: duplicates, splits, shards and places, as properties over made tables."""

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
from shardmill.beam_jobs.plan import Plan, PreviousRecords, num_shards, plan_version
from shardmill.beam_jobs.plan.columns import hash_ranks
from shardmill.beam_jobs.plan.splits import assign_splits, divide_by_fractions
from shardmill.beam_jobs.publish.accounting import account
from shardmill.beam_jobs.schemas import FACTS_SCHEMA, LISTING_SCHEMA, Status
from shardmill.beam_jobs.tables.ids import digest_bytes, hex_text, record_ids
from shardmill.infra.errors import DataError
from shardmill.infra.format.contract import INPUTS_SCHEMA, SPLITS
from shardmill.infra.splitmix import splitmix64

# One file: (content, class, given split, fate). Equal contents are duplicates.
FILE = st.tuples(
    st.integers(0, 60),
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from([None, None, None, "train", "validation", "test"]),
    st.sampled_from(["stored"] * 6 + ["broken", "unread", "ignored", "no_class", "too_small"]),
)
File = tuple[int, str, str | None, str]
FILES = st.lists(FILE, max_size=120)


def sha256(content: int) -> bytes:
    return hashlib.sha256(str(content).encode()).digest()


def tables(files: list[File]) -> tuple[pa.Table, pa.Table]:
    """(listing, facts) of files; the URI tells a file's number."""
    listing, facts = [], []
    for number, (content, label, split, fate) in enumerate(files):
        row: dict[str, Any] = {
            "uri": f"{number:04d}",
            "size_bytes": 9,
            "mtime_ns": 1,
            "label": label,
            "split": split,
        }
        if fate == "ignored":
            listing.append(row | {"status": Status.FILTERED, "reason": "ignored", "message": "by a pattern"})
            continue
        if fate == "no_class":
            listing.append(
                row | {"label": None, "status": Status.QUARANTINED, "reason": "no_class", "message": "m"}
            )
            continue
        listing.append(row | {"status": Status.TO_READ})
        known = {"sha256": sha256(content), "status": Status.STORED}
        if fate == "stored":
            place = {"offset_bytes": number * 100, "stored_bytes": 50 + content, "height": 4, "width": 5}
            source = {"source_format": "png", "source_height": 8, "source_width": 10, "orientation": 1}
            facts.append(known | place | source)
        elif fate == "broken":
            facts.append(
                known | {"status": Status.QUARANTINED, "stage": "decode", "reason": "corrupt", "message": "m"}
            )
        elif fate == "too_small":
            facts.append(
                known | {"status": Status.FILTERED, "stage": "filter", "reason": "too_small", "message": "m"}
            )
        else:
            facts.append(
                {"status": Status.QUARANTINED, "stage": "read", "reason": "vanished", "message": "m"}
            )
    return pa.Table.from_pylist(listing, LISTING_SCHEMA), pa.Table.from_pylist(facts, FACTS_SCHEMA)


def plan(files: list[File], **config: Any) -> Plan:
    listing, facts = tables(files)
    placed = place_facts(facts, np.arange(facts.num_rows, dtype=np.int32) // 7)
    return plan_version(listing, placed, PrepareConfig.model_validate(config))


@settings(deadline=None)
@given(FILES, st.integers(0, 3))
def test_every_file_has_one_outcome_and_they_add_up(files: list[File], seed: int) -> None:
    found = plan(files, seed=seed)
    assert found.inputs.schema == INPUTS_SCHEMA
    assert found.inputs["uri"].to_pylist() == [f"{number:04d}" for number in range(len(files))]
    counted = account(found.inputs)
    stored = {content for content, _, _, fate in files if fate == "stored"}
    assert counted.num_records == len(stored) == found.records.num_rows
    assert counted.num_duplicates == sum(fate == "stored" for *_, fate in files) - len(stored)
    assert counted.num_filtered == sum(fate in ("ignored", "too_small") for *_, fate in files)
    assert counted.num_quarantined == sum(fate in ("broken", "unread", "no_class") for *_, fate in files)


@settings(deadline=None)
@given(FILES)
def test_the_smallest_uri_is_kept_and_the_others_lead_to_it(files: list[File]) -> None:
    found = plan(files)
    first: dict[int, dict[str, Any]] = {}
    for row, (content, label, split, fate) in zip(found.inputs.to_pylist(), files, strict=True):
        if fate != "stored":
            assert row["record_id"] is None
            assert row["reason"] is not None
            assert row["stage"] is not None
            continue
        assert row["record_id"] == sha256(content).hex()[:16]
        assert row["sha256"] == sha256(content).hex()
        kept = first.setdefault(content, row)
        assert row["outcome"] == ("record" if kept is row else "duplicate")
        assert row["split"] == kept["split"]
        if kept is row and split is not None:
            assert row["split"] == split
        assert row["label"] == label
    assert set(found.records["source_uri"].to_pylist()) == {row["uri"] for row in first.values()}
    labels = defaultdict(set)
    for content, label, _, fate in files:
        if fate == "stored":
            labels[content].add(label)
    conflicts = {conflict.sha256: set(conflict.labels) for conflict in found.summary.label_conflicts}
    assert conflicts == {sha256(content).hex(): names for content, names in labels.items() if len(names) > 1}


@settings(deadline=None)
@given(FILES, st.one_of(st.none(), st.integers(1, 9)), st.integers(1, 3000), st.integers(0, 3))
def test_shards_are_within_one_in_count_and_class(
    files: list[File], wanted: int | None, shard_bytes: int, seed: int
) -> None:
    found = plan(files, shards={"num_shards": wanted, "shard_bytes": shard_bytes}, seed=seed)
    assert sum(shard.length for shard in found.shards) == found.records.num_rows
    split_of = dict(zip(*(found.inputs[name].to_pylist() for name in ("uri", "split")), strict=True))
    start = 0
    by_split = defaultdict(list)
    for shard in found.shards:
        assert shard.start == start
        start += shard.length
        rows = found.records.slice(shard.start, shard.length).to_pylist()
        assert {split_of[row["source_uri"]] for row in rows} == {shard.split}
        by_split[shard.split].append(Counter(row["label"] for row in rows))
    for split, counts in by_split.items():
        sizes = [count.total() for count in counts]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1
        if wanted is not None:
            assert len(counts) == min(wanted, sum(sizes))
        for label in set().union(*counts):
            each = [count[label] for count in counts]
            assert max(each) - min(each) <= 1
        assert [shard.count for shard in found.shards if shard.split == split] == [len(counts)] * len(counts)
    assert found.classes == sorted({files[int(uri)][1] for uri in found.records["source_uri"].to_pylist()})


@settings(deadline=None)
@given(FILES)
def test_blocks_and_chunks_change_nothing_but_addresses(files: list[File]) -> None:
    listing, facts = tables(files)
    config = PrepareConfig()
    one = plan_version(listing, place_facts(facts, np.zeros(facts.num_rows, np.int32)), config)
    chunks = pa.concat_tables([facts.slice(i, 5) for i in range(0, facts.num_rows, 5)] or [facts])
    two = plan_version(listing, place_facts(chunks, np.arange(facts.num_rows, dtype=np.int32)), config)
    assert one.inputs.equals(two.inputs)
    assert one.records.drop_columns("block").equals(two.records.drop_columns("block"))
    assert one.shards == two.shards
    for record in two.records.to_pylist():
        assert facts["offset_bytes"][record["block"]].as_py() == record["offset_bytes"]


@settings(deadline=None)
@given(st.sets(st.integers(0, 10**6), min_size=1, max_size=150), st.randoms())
def test_records_do_not_depend_on_the_names_that_order_them(contents: set[int], random: Any) -> None:
    ordered = sorted(contents)
    files: list[File] = [(content, "abc"[content % 3], None, "stored") for content in ordered]
    shuffled = files.copy()
    random.shuffle(shuffled)
    config = {"shards": {"num_shards": 2}}
    one, two = plan(files, **config), plan(shuffled, **config)
    assert one.records["id"].to_pylist() == two.records["id"].to_pylist()
    assert one.records["label"].to_pylist() == two.records["label"].to_pylist()


def test_given_splits_and_duplicates_across_them() -> None:
    files: list[File] = [(1, "a", "train", "stored"), (1, "a", "test", "stored"), (1, "a", "train", "stored")]
    found = plan(files)
    assert found.summary.cross_split_duplicates == 1
    assert found.inputs["split"].to_pylist() == ["train"] * 3
    assert found.inputs["reason"].to_pylist() == [None, "same_bytes_across_splits", "same_bytes"]
    assert found.inputs["message"].to_pylist()[1] == "the same bytes as 0000"


@settings(deadline=None)
@given(FILES)
def test_a_duplicate_crosses_where_both_splits_are_given_and_differ(files: list[File]) -> None:
    found = plan(files)
    first: dict[int, str | None] = {}
    crossing = []
    for number, (content, _, split, fate) in enumerate(files):
        if fate == "stored" and first.setdefault(content, split) not in (None, split) and split is not None:
            crossing.append(f"{number:04d}")
    rows = found.inputs.to_pylist()
    assert [row["uri"] for row in rows if row["reason"] == "same_bytes_across_splits"] == crossing
    assert found.summary.cross_split_duplicates == len(crossing)


def test_different_contents_of_one_id_are_an_error() -> None:
    listing, facts = tables([(1, "a", None, "stored"), (2, "b", None, "stored")])
    clash = sha256(1)[:8] + bytes(24)
    facts = facts.set_column(0, FACTS_SCHEMA.field(0), pa.array([sha256(1), clash], pa.binary(32)))
    with pytest.raises(DataError, match="0001 and 0000 differ, but share the record id"):
        plan_version(listing, place_facts(facts, np.zeros(2, np.int32)), PrepareConfig())


def test_nothing_at_all() -> None:
    found = plan([])
    assert (found.inputs.num_rows, found.records.num_rows, found.shards, found.classes) == (0, 0, [], [])


def test_the_seed_changes_splits_and_order() -> None:
    files: list[File] = [(number, "a", None, "stored") for number in range(60)]
    one, two = plan(files, seed=0), plan(files, seed=1)
    assert one.inputs["split"].to_pylist() != two.inputs["split"].to_pylist()
    assert one.records["id"].to_pylist() != two.records["id"].to_pylist()


@pytest.mark.parametrize(
    ("num_examples", "num_bytes", "config", "expected"),
    [
        (100, 1000, {"shard_bytes": 1000}, 1),
        (100, 1001, {"shard_bytes": 1000}, 2),
        (3, 10**9, {"shard_bytes": 1000}, 3),
        (100, 1, {"num_shards": 7}, 7),
        (5, 1, {"num_shards": 7}, 5),
        (1, 0, {}, 1),
    ],
)
def test_num_shards(num_examples: int, num_bytes: int, config: dict[str, Any], expected: int) -> None:
    assert (
        num_shards(num_examples, num_bytes, PrepareConfig.model_validate({"shards": config}).shards)
        == expected
    )


# -- splits --------------------------------------------------------------------------------------------

FRACTIONS = (
    st.lists(st.integers(0, 20), min_size=3, max_size=3)
    .filter(any)
    .map(lambda parts: [part / sum(parts) for part in parts])
)


@settings(deadline=None)
@given(st.lists(st.integers(0, 200), max_size=40), FRACTIONS)
def test_each_class_is_cut_at_the_fractions(counts: list[int], fractions: list[float]) -> None:
    seats = divide_by_fractions(np.array(counts, np.int64), fractions)
    assert seats.sum(axis=1).tolist() == counts
    shares = np.outer(counts, fractions)
    # Rounded down or up; only the first record of a class may overrule that, for train's sake.
    assert (np.abs(seats - shares) < 1 + 1e-9).all()
    if counts:
        assert np.abs(seats.sum(axis=0) - shares.sum(axis=0)).max() <= 1.5 + sum(
            count * fractions[0] < 1 for count in counts
        )


@pytest.mark.parametrize(
    ("counts", "fractions", "expected"),
    [
        ([10, 100], (0.8, 0.1, 0.1), [[8, 1, 1], [80, 10, 10]]),
        ([30], (0.7, 0.2, 0.1), [[21, 6, 3]]),  # 0.7 * 30 is 20.999999999999996
        ([1], (0.8, 0.1, 0.1), [[1, 0, 0]]),
        ([1, 1, 1, 1], (0.4, 0.3, 0.3), [[1, 0, 0]] * 4),  # a class that is only tested can never be right
        ([5], (0.0, 0.5, 0.5), [[0, 3, 2]]),
        ([4, 4], (0.8, 0.1, 0.1), [[3, 1, 0], [3, 0, 1]]),  # not validation both times
        ([3, 3], (1.0, 0.0, 0.0), [[3, 0, 0], [3, 0, 0]]),
        ([0], (0.8, 0.1, 0.1), [[0, 0, 0]]),
    ],
)
def test_divide_by_fractions(
    counts: list[int], fractions: tuple[float, ...], expected: list[list[int]]
) -> None:
    assert divide_by_fractions(np.array(counts, np.int64), fractions).tolist() == expected


def test_the_lowest_ranks_of_a_class_go_to_train() -> None:
    labels = np.array([0, 1] * 10)
    ranks = np.arange(20, dtype=np.uint64)[::-1].copy()
    found = assign_splits(np.full(20, -1, np.int8), labels, ranks, (0.8, 0.1, 0.1))
    assert [SPLITS[code] for code in found[::-1]] == ["train"] * 16 + ["validation"] * 2 + ["test"] * 2
    given = np.full(20, 2, np.int8)
    assert assign_splits(given, labels, ranks, (1, 0, 0)).tolist() == [2] * 20


# -- hashing -------------------------------------------------------------------------------------------


def test_splitmix64_is_the_published_one() -> None:
    # First outputs of the reference implementation seeded with 1234567.
    steps = np.arange(3, dtype=np.uint64) * np.array([0x9E3779B97F4A7C15], np.uint64)
    outputs = splitmix64(steps + np.uint64(1234567)).tolist()
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_ranks_of_two_purposes_are_unrelated() -> None:
    ids = np.arange(5000, dtype=np.uint64)
    orders = [np.argsort(hash_ranks(ids, seed, purpose)) for seed, purpose in ((0, 0), (0, 1), (1, 0))]
    for one in range(3):
        for other in range(one):
            assert abs(np.corrcoef(np.argsort(orders[one]), np.argsort(orders[other]))[0, 1]) < 0.06


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=20), st.integers(0, 5))
def test_hex_and_ids_of_columns(digests: list[bytes], skip: int) -> None:
    column = pa.chunked_array([pa.array(digests, pa.binary(32))]).slice(skip)
    values = digest_bytes(column)
    assert hex_text(values).to_pylist() == [digest.hex() for digest in digests[skip:]]
    assert [f"{number:016x}" for number in record_ids(values).tolist()] == [
        d.hex()[:16] for d in digests[skip:]
    ]


# -- a later version -----------------------------------------------------------------------------------


def previous_of(found: Plan) -> PreviousRecords:
    held = found.inputs.filter(pc.equal(found.inputs["outcome"], "record"))
    pairs = sorted(
        (int(record_id, 16), SPLITS.index(split))
        for record_id, split in zip(held["record_id"].to_pylist(), held["split"].to_pylist(), strict=True)
    )
    ids, splits = np.array(pairs, np.uint64).reshape(-1, 2).T
    return PreviousRecords(ids.copy(), splits.astype(np.int8), tuple(found.classes))


def plan_after(previous: PreviousRecords, files: list[File], **config: Any) -> Plan:
    listing, facts = tables(files)
    placed = place_facts(facts, np.zeros(facts.num_rows, np.int32))
    return plan_version(listing, placed, PrepareConfig.model_validate(config), previous)


@settings(deadline=None)
@given(FILES, FILES)
def test_records_keep_their_split_and_classes_their_number(old: list[File], new: list[File]) -> None:
    first = plan([(content, label, None, fate) for content, label, _, fate in old])
    grown = [(content, label, None, fate) for content, label, _, fate in old + new]
    second = plan_after(previous_of(first), grown)
    splits = dict(zip(*(first.inputs[name].to_pylist() for name in ("record_id", "split")), strict=True))
    for row in second.inputs.to_pylist():
        if row["outcome"] == "record" and row["record_id"] in splits:
            assert row["split"] == splits[row["record_id"]]
    assert second.classes[: len(first.classes)] == first.classes
    assert second.classes[len(first.classes) :] == sorted(second.classes[len(first.classes) :])


def test_a_given_split_comes_before_the_earlier_one_and_a_new_class_after_the_old() -> None:
    first = plan([(1, "b", "train", "stored"), (2, "c", None, "stored")])
    second = plan_after(previous_of(first), [(1, "b", "test", "stored"), (3, "a", None, "stored")])
    assert second.inputs["split"].to_pylist() == ["test", "train"]
    assert second.classes == ["b", "c", "a"]
    assert second.records["label"].to_pylist() == [2, 0]
