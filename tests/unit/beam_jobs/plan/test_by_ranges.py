"""A plan by ranges equals the plan in one process, byte for byte."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.encode.blocks import Block, facts_digest, place_facts, write_facts
from shardmill.beam_jobs.execution.task import work_name
from shardmill.beam_jobs.plan import AnyPlan, HeldShards, Plan, PreviousRecords, plan_version
from shardmill.beam_jobs.plan_by_ranges import (
    GatherFacts,
    begun_ranges,
    cut_files,
    num_ranges,
    plan_on_storage,
    plan_tables,
    too_little_memory,
)
from shardmill.beam_jobs.plan_by_ranges.tables import RangeTask
from shardmill.beam_jobs.publish.digests import Digests, plan_digest
from shardmill.beam_jobs.publish.outline import cut_inputs, table_bytes
from shardmill.beam_jobs.schemas import FACTS_SCHEMA, LISTING_SCHEMA, Status
from shardmill.beam_jobs.tables.ids import digest_bytes, record_ids
from shardmill.infra.errors import ConfigError, LeakError
from shardmill.infra.format.contract import SPLITS
from shardmill.infra.storage.filesystem import Storage

BLOCK = 5
GIB = 1 << 30
MULTI = {"labels": "multi", "kind": "table", "table": {"file": "labels.csv"}}

# One file: (content, class, given split, key, fate).
FILE = st.tuples(
    st.integers(0, 70),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from([None, None, None, "train", "validation", "test"]),
    st.sampled_from([None, None, "p", "q", "r", "s"]),
    st.sampled_from(["stored"] * 8 + ["broken", "ignored"]),
)
File = tuple[int, str, str | None, str | None, str]
FILES = st.lists(FILE, min_size=1, max_size=150)


def tables(files: list[File]) -> tuple[pa.Table, pa.Table]:
    """(listing, facts) of files. Contents with the same remainder by 9 look nearly the same."""
    listing, facts = [], []
    for number, (content, label, split, key, fate) in enumerate(files):
        row = {"uri": f"{number:04d}", "size_bytes": 9, "mtime_ns": 1, "label": label, "split": split}
        row |= {"group": key, "status": Status.TO_READ}
        if fate == "ignored":
            row |= {"status": Status.FILTERED, "reason": "ignored", "message": "by a pattern"}
        listing.append(row)
        sha256 = hashlib.sha256(str(content).encode()).digest()
        if fate == "broken":
            why = {"stage": "decode", "reason": "corrupt", "message": "m"}
            facts.append({"sha256": sha256, "status": Status.QUARANTINED, **why})
        elif fate == "stored":
            facts.append(_stored(number, content, sha256))
    return pa.Table.from_pylist(listing, LISTING_SCHEMA), pa.Table.from_pylist(facts, FACTS_SCHEMA)


def _stored(number: int, content: int, sha256: bytes) -> dict[str, Any]:
    rng = np.random.default_rng(content % 9)
    look = rng.integers(-60, 60, 196).astype(np.int8)
    look[-1] += content % 2
    fact = {"sha256": sha256, "status": Status.STORED, "offset_bytes": number * 100, "source_format": "png"}
    fact |= {"stored_bytes": 50 + content, "height": 4 + content % 3, "width": 5 + content % 4}
    fact |= {"luma_p5": content // 2, "luma_p99": 70 + 2 * content, "luma_entropy": 2 + content / 20}
    fact |= {"pixel_mean": [content / 3, 2.0, 1.5], "pixel_std": [1.0, content / 7, 3.0], "had_alpha": False}
    return fact | {"look": None if content % 5 == 0 else look.tobytes(), "perceptual_hash": content + 1}


def in_one_process(files: list[File], config: PrepareConfig, previous: PreviousRecords | None = None) -> Plan:
    return plan_of(*tables(files), config, previous)


def plan_of(
    listing: pa.Table, facts: pa.Table, config: PrepareConfig, previous: PreviousRecords | None = None
) -> Plan:
    placed = place_facts(facts, np.arange(facts.num_rows, dtype=np.int32) // BLOCK)
    look = placed.schema.get_field_index("look")
    placed = placed.set_column(look, "look", placed["look"].cast(facts.schema.field("look").type))
    return plan_version(listing, placed, config, previous)


def by_ranges(
    files: list[File],
    config: PrepareConfig,
    ranges: int,
    folder: str,
    previous: PreviousRecords | None = None,
    run: Callable[[RangeTask, Sequence[int]], object] | None = None,
) -> AnyPlan:
    return ranges_of(*tables(files), config, ranges, folder, previous, run)


def ranges_of(
    listing: pa.Table,
    facts: pa.Table,
    config: PrepareConfig,
    ranges: int,
    folder: str,
    previous: PreviousRecords | None = None,
    run: Callable[[RangeTask, Sequence[int]], object] | None = None,
) -> AnyPlan:
    spool = Storage.at(folder)
    blocks = []
    for number, start in enumerate(range(0, facts.num_rows, BLOCK)):
        part = facts.slice(start, BLOCK)
        blocks.append(Block(f"block{number}", start, part.num_rows))
        write_facts(spool, blocks[-1].digest, part)
    places = plan_tables(spool, "digest", ranges)
    gathering = GatherFacts(places, cut_files(places, listing, blocks), FACTS_SCHEMA)
    return plan_on_storage(
        gathering, config, previous, run or (lambda task, todo: [task.do(number) for number in todo])
    )


def assert_equal(found: AnyPlan, expected: Plan) -> None:
    assert found.shards == expected.shards
    assert found.inherited == expected.inherited
    assert found.summary == expected.summary
    assert (found.near_duplicates is None) == (expected.near_duplicates is None)
    if found.near_duplicates is not None and expected.near_duplicates is not None:
        assert found.near_duplicates.equals(expected.near_duplicates)
    assert found.input_rows.table().equals(expected.inputs)
    for shard in expected.shards:
        assert found.records_of(shard).to_pylist() == expected.records_of(shard).to_pylist()
    assert found.planned.sample(20, 3).to_pylist() == expected.planned.sample(20, 3).to_pylist()
    digests = Digests("run", "source", {})
    assert plan_digest(found, digests, "none") == plan_digest(expected, digests, "none")
    ours, theirs = cut_inputs(found.input_rows, 16), cut_inputs(expected.input_rows, 16)
    assert [table_bytes(rows) for rows in ours] == [table_bytes(rows) for rows in theirs]


def previous_of(plan: Plan, keep: int) -> PreviousRecords:
    """The records of a plan as those of a version, without every so many."""
    records = plan.records
    shards = np.repeat(np.arange(len(plan.shards)), [shard.length for shard in plan.shards])
    splits = np.array([SPLITS.index(shard.split) for shard in plan.shards], np.int8)[shards]
    ids = record_ids(digest_bytes(records["sha256"]))
    kept = np.arange(len(ids)) % keep != keep - 1
    order = np.flatnonzero(kept)[np.argsort(ids[kept])]
    held = HeldShards(
        ids[order],
        shards[order].astype(np.int32),
        records["label"].to_numpy()[order],
        splits[order],
        records.select(["source_uri", "group"]).take(pa.array(order)),
        np.bincount(shards, minlength=len(plan.shards)),
    )
    return PreviousRecords(ids[order], splits[order], tuple(plan.classes), held)


@settings(deadline=None, max_examples=20)
@given(
    FILES,
    st.integers(1, 6),
    st.integers(0, 3),
    st.sampled_from(["keep", "drop-from-train"]),
    st.booleans(),
    st.sampled_from([None, 1, 5]),
    st.sampled_from([(), "all"]),
)
def test_a_plan_by_ranges_equals_the_plan_in_one_process(
    files: list[File], ranges: int, seed: int, leakage: str, near: bool, shards: int | None, quality: object
) -> None:
    config = PrepareConfig.model_validate(
        {
            "seed": seed,
            "filter": {"quality": quality},
            "groups": {"leakage": leakage, "near_duplicates": near},
            "shards": {"num_shards": shards, "shard_bytes": 1000},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        assert_equal(by_ranges(files, config, ranges, folder), in_one_process(files, config))


@settings(deadline=None, max_examples=8)
@given(FILES, FILES, st.integers(2, 5), st.integers(2, 40), st.booleans())
def test_a_plan_by_ranges_on_top_of_a_version_equals_the_plan_in_one_process(
    before: list[File], added: list[File], ranges: int, keep: int, drops: bool
) -> None:
    config = PrepareConfig.model_validate(
        {
            "shards": {"shard_bytes": 1500},
            "groups": {"near_duplicates": False},
            "filter": {"drop_empty_classes": drops},
        }
    )
    previous = previous_of(in_one_process(before, config), keep)
    previous = replace(previous, empty=frozenset(previous.classes[:1]))
    files = before + added
    with tempfile.TemporaryDirectory() as folder:
        found = by_ranges(files, config, ranges, folder, previous)
        assert_equal(found, in_one_process(files, config, previous))


@settings(deadline=None, max_examples=5)
@given(FILES, st.integers(2, 5))
def test_records_without_labels_are_planned_by_ranges_too(files: list[File], ranges: int) -> None:
    config = PrepareConfig.model_validate({"source": {"labels": "none"}, "shards": {"shard_bytes": 1500}})
    with tempfile.TemporaryDirectory() as folder:
        assert_equal(by_ranges(files, config, ranges, folder), in_one_process(files, config))


def test_text_behind_a_null_changes_no_plan(tmp_path: Path) -> None:
    """``pc.if_else`` leaves the text that it hides in the column."""
    listing, facts = tables([(at, "abc"[at % 3], None, "pq"[at % 2], "stored") for at in range(40)])
    at = listing.schema.get_field_index("group")
    has_key = pa.array([number % 4 == 0 for number in range(40)])
    hidden = pc.if_else(has_key, listing["group"], pa.scalar(None, pa.string()))
    plain = pa.chunked_array([hidden.to_pylist()], pa.string())
    found = [
        ranges_of(listing.set_column(at, "group", groups), facts, PrepareConfig(), 3, str(tmp_path / name))
        for name, groups in (("hidden", hidden), ("plain", plain))
    ]
    found += [
        plan_of(listing.set_column(at, "group", groups), facts, PrepareConfig()) for groups in (hidden, plain)
    ]
    assert len({plan_digest(plan, Digests("run", "source", {}), "none") for plan in found}) == 1


@pytest.mark.parametrize("leakage", ["keep", "drop-from-train"])
def test_a_plan_does_not_depend_on_the_width_of_the_offsets_of_texts(leakage: str) -> None:
    """Columns of more than 2 GiB have offsets of 64 bits."""
    files: list[File] = [
        (at % 50, "abc"[at % 3], (None, None, "train", "test")[at % 4], "pqrs"[at % 4], "stored")
        for at in range(80)
    ]
    config = PrepareConfig.model_validate({"groups": {"leakage": leakage}, "shards": {"shard_bytes": 1500}})
    listing, facts = tables(files)
    previous = previous_of(in_one_process(files[:60], config), 7)
    assert previous.held is not None
    held = replace(previous.held, said=_wide(previous.held.said))
    expected = in_one_process(files, config, previous)
    assert_equal(plan_of(_wide(listing), _wide(facts), config, replace(previous, held=held)), expected)


def _wide(table: pa.Table) -> pa.Table:
    kinds = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    fields = [
        field if field.name == "label" else field.with_type(kinds.get(field.type, field.type))
        for field in table.schema  # labels are coded by then
    ]
    return table.cast(pa.schema(fields))


def test_an_interrupted_plan_goes_on_with_the_tables_that_are_there() -> None:
    files: list[File] = [
        (number % 40, "abc"[number % 3], None, "pqrs"[number % 4], "stored") for number in range(60)
    ]
    config = PrepareConfig.model_validate({"shards": {"shard_bytes": 1500}})
    done: list[tuple[str, int]] = []

    def run(task: RangeTask, numbers: Sequence[int]) -> None:
        for number in numbers:
            if len(done) in (5, 18):
                done.append(("killed", number))
                raise InterruptedError
            task.do(number)
            done.append((task.name, number))

    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            with pytest.raises(InterruptedError):
                by_ranges(files, config, 4, folder, run=run)
        assert_equal(by_ranges(files, config, 4, folder, run=run), in_one_process(files, config))
    finished = [number for number in done if number[0] != "killed"]
    assert len(finished) == len(set(finished)) == 7 * 4, "each range of each task once"


def test_a_group_in_several_splits_is_refused_in_the_same_words() -> None:
    files: list[File] = [
        (number, "a", SPLITS[number % 3], "pq"[number % 2], "stored") for number in range(20)
    ]
    config = PrepareConfig.model_validate({"groups": {"leakage": "fail"}})
    with pytest.raises(LeakError) as expected:
        in_one_process(files, config)
    with tempfile.TemporaryDirectory() as folder, pytest.raises(LeakError) as found:
        by_ranges(files, config, 3, folder)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"source": MULTI}, "'multi'"),
        ({"groups": {"embeddings": {"file": "vectors.npz"}}}, "groups.embeddings"),
    ],
)
def test_a_plan_that_needs_one_process_is_refused_by_ranges(settings: dict[str, Any], named: str) -> None:
    config = PrepareConfig.model_validate({**settings, "runner": {"plan_ranges": 4}})
    with pytest.raises(ConfigError, match=named):
        num_ranges(config, LISTING_SCHEMA.empty_table(), free_bytes=0)
    automatic = PrepareConfig.model_validate(settings)
    assert num_ranges(automatic, LISTING_SCHEMA.empty_table(), free_bytes=0) == 1


@pytest.mark.parametrize(
    ("settings", "begun", "gib", "expected"),
    [
        ({}, None, 8, 1),
        ({"groups": {"near_duplicates": False}}, None, 2, 1),
        ({}, None, 2, 3),  # of two processes, each within half of the free memory
        ({}, None, 1 / 64, 374),
        ({}, 64, 8, 64),  # an interrupted plan goes on
        ({"runner": {"plan_ranges": 3}}, 64, 8, 3),
    ],
)
def test_memory_decides_between_one_process_and_ranges(
    settings: dict[str, Any], begun: int | None, gib: float, expected: int
) -> None:
    config = PrepareConfig.model_validate(
        {**settings, "runner": {"processes": 2, **settings.get("runner", {})}}
    )
    files = 1_010_000
    listing = pa.table({"uri": pa.array(np.zeros(files, np.int64))})
    assert num_ranges(config, listing, int(gib * GIB), begun) == expected


@pytest.mark.parametrize(
    ("settings", "gib", "said"),
    [
        ({"groups": {"near_duplicates": True}}, 0.5, "set groups.near_duplicates=false, or"),
        ({"groups": {"near_duplicates": False}}, 0.25, None),
        (
            {"groups": {"near_duplicates": False}, "runner": {"plan_ranges": 1}},
            0.25,
            "set runner.plan_ranges=0, or",
        ),
        (
            {"groups": {"near_duplicates": False}, "source": MULTI},
            0.25,
            "for the plan, and 0.2 GiB",
        ),
        ({}, 8, None),
    ],
)
def test_a_plan_that_memory_is_too_small_for_is_warned_of(
    settings: dict[str, Any], gib: float, said: str | None
) -> None:
    config = PrepareConfig.model_validate(settings)
    listing = pa.table({"uri": pa.array(np.zeros(1_000_000, np.int64))})
    warning = too_little_memory(config, listing, int(gib * GIB))
    assert (warning is not None) is (said is not None), warning
    if said is not None and warning is not None:
        for words in (said, "1,000,000 files", "on a machine with more memory"):
            assert words in warning


def test_the_ranges_of_an_interrupted_plan_are_found_again(tmp_path: Path) -> None:
    spool = Storage.at(tmp_path)
    assert begun_ranges(spool) is None
    spool.write_atomic(plan_tables(spool, "0a1b", 12).path("listed", 0), b"")
    assert begun_ranges(spool) == 12


def test_a_plan_by_ranges_is_made_anew_if_a_block_was_written_again(tmp_path: Path) -> None:
    _, facts = tables([(at, "a", None, None, "stored") for at in range(3)])
    spool = Storage.at(tmp_path)
    write_facts(spool, "one", facts)
    write_facts(spool, "two", facts)
    before = facts_digest(spool)
    assert before == facts_digest(spool)
    write_facts(spool, "two", facts.slice(1))
    assert facts_digest(spool) != before


def test_jobs_of_a_plan_on_a_cluster_are_those_of_its_dataset(tmp_path: Path) -> None:
    names: dict[str, set[str]] = {}

    def run(task: RangeTask, todo: Sequence[int]) -> None:
        names.setdefault(task.place, set()).add(work_name(task))
        for number in todo:
            task.do(number)

    for dataset in ("one", "two"):
        by_ranges([(1, "a", None, None, "stored")], PrepareConfig(), 2, str(tmp_path / dataset), run=run)
    assert set(names) == {Storage.at(tmp_path / dataset).uri for dataset in ("one", "two")}
    assert len(set.union(*names.values())) == 2
