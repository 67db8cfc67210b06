"""What of an earlier version counts under which settings, and the lists that workers ask."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.blocks import FACTS_SCHEMA
from beam_jobs.config import PrepareConfig
from beam_jobs.contents import DigestList, KnownContents
from beam_jobs.input_parts import cut_inputs, write_inputs
from beam_jobs.known import Facts, Reuse, merge
from beam_jobs.plan.hashing import hex_bytes, hex_text
from beam_jobs.plan.shards import HeldShards, deal
from beam_jobs.reuse import crowded_shards, retried_reasons, reuse_of
from infra.contract import INPUTS_SCHEMA, Manifest
from infra.storage import Storage

BUILDS = {"pillow": "12"}
ALL, COPIES, NOTHING = (True, True, True), (True, True, False), (False, False, False)


def manifest(**config: Any) -> Manifest:
    return Manifest.model_validate(
        {
            "dataset": "d", "version": 1, "created_at": "2026-01-02T03:04:05Z", "plan_digest": "p",
            "run_digest": "r", "source": "/photos", "source_digest": "s", "classes": [], "shards": [],
            "container": "none", "codecs": BUILDS, "inputs": [], "splits": {},
            "config": PrepareConfig.model_validate(config).model_dump(mode="json"),
            "accounting": dict.fromkeys(
                ("num_inputs", "num_records", "num_duplicates", "num_filtered", "num_quarantined"), 0
            ),
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({}, {}, ALL),
        ({}, {"failure_budget": 0.5, "runner": {"workers": 7}}, ALL),
        ({}, {"splits": {"train": 0.6, "validation": 0.2, "test": 0.2}}, ALL),
        ({}, {"groups": {"max_distance": 2}, "filter": {"ignore": ["*.gif"], "classes": ["a"]}}, ALL),
        ({}, {"shards": {"container": "none"}}, ALL),  # as auto chose
        ({}, {"shards": {"container": "gzip"}}, COPIES),
        ({}, {"shards": {"num_shards": 3}}, COPIES),
        ({"shards": {"num_shards": 3}}, {}, COPIES),
        ({}, {"shards": {"shard_bytes": 1000}}, COPIES),
        ({}, {"seed": 1}, COPIES),
        ({}, {"image": {"quality": 89}}, NOTHING),
        ({}, {"image": {"max_pixels": 1000}}, NOTHING),
        ({}, {"filter": {"min_width": 3}}, NOTHING),
        ({"filter": {"max_aspect": 2}}, {}, NOTHING),
    ],
)
def test_what_counts_under_which_settings(
    before: dict[str, Any], now: dict[str, Any], expected: tuple[bool, bool, bool]
) -> None:
    found = reuse_of(manifest(**before), PrepareConfig.model_validate(now), "/photos", BUILDS)
    assert found == Reuse(*expected)


def test_what_counts_of_another_source_other_libraries_and_another_release() -> None:
    config = PrepareConfig()
    assert reuse_of(manifest(), config, "/others", BUILDS) == Reuse(contents=True, uris=False, shards=True)
    assert reuse_of(manifest(), config, "/photos", {"pillow": "13"}) == Reuse(*NOTHING)
    unlike = manifest().model_copy(update={"config": {"image": {"short_side": 256}}})
    assert reuse_of(unlike, config, "/photos", BUILDS) == Reuse(*NOTHING)


def test_a_decoder_is_tried_again_under_other_limits() -> None:
    assert "decoder_hung" not in retried_reasons(manifest(), PrepareConfig())
    later = PrepareConfig.model_validate({"runner": {"image_seconds": 600}})
    assert {"decoder_hung", "vanished"} <= set(retried_reasons(manifest(), later))


@pytest.mark.parametrize(
    ("num_shards", "config", "says"),
    [(7, {}, None), (8, {}, "8 shards where 1 would do"), (8, {"shards": {"num_shards": 4}}, None)],
)
def test_many_small_shards_are_told(num_shards: int, config: dict[str, Any], says: str | None) -> None:
    split = {"num_examples": 100, "num_shards": num_shards, "num_bytes": 1000, "class_counts": {}}
    found = manifest(**config).model_copy(
        update={"splits": {"train": Manifest.model_fields["splits"].annotation.__args__[1](**split)}}  # type: ignore[union-attr]
    )
    told = crowded_shards(found)
    assert told is None if says is None else says in str(told)


# -- lists of contents -----------------------------------------------------------------------------------


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=40), st.binary(min_size=32, max_size=32))
def test_a_digest_list_holds_what_it_was_made_of(digests: list[bytes], other: bytes) -> None:
    found = DigestList.of(digests)
    assert len(found) == len(digests)
    assert all(digest in found for digest in digests)
    assert (other in found) == (other in digests)


def test_contents_go_through_the_spool(tmp_path: Path) -> None:
    spool = Storage.at(tmp_path)
    assert KnownContents.read(spool) == KnownContents()
    one, two = (hashlib.sha256(text).digest() for text in (b"one", b"two"))
    KnownContents(DigestList.of([one]), DigestList.of([two])).write(spool)
    found = KnownContents.read(spool)
    assert (one in found.stored, two in found.stored, two in found.purged) == (True, False, True)
    KnownContents().write(spool)
    assert one not in KnownContents.read(spool).stored


@given(st.lists(st.binary(min_size=8, max_size=8), max_size=20), st.integers(0, 3))
def test_hexadecimal_text_there_and_back(values: list[bytes], skip: int) -> None:
    digits = np.frombuffer(b"".join(values), np.uint8).reshape(-1, 8)
    text = hex_text(digits)
    assert text.to_pylist() == [value.hex() for value in values]
    assert (hex_bytes(text.slice(skip), 8) == digits[skip:]).all()


@pytest.mark.parametrize("texts", [["00", None], ["00", "000"], ["0"]])
def test_text_that_stands_for_no_bytes(texts: list[str | None]) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        hex_bytes(pa.array(texts), 1)


def test_facts_are_merged_in_the_order_of_the_files() -> None:
    def facts(names: list[str], blocks: list[int]) -> Facts:
        rows = [{"reason": name} for name in names]
        return Facts(pa.Table.from_pylist(rows, FACTS_SCHEMA), np.array(blocks, np.int32))

    known = np.array([False, True, False, True, True])
    merged = merge(known, facts(["b", "d", "e"], [~0, ~1, ~0]), facts(["a", "c"], [0, 1]))
    assert merged.table["reason"].to_pylist() == ["a", "b", "c", "d", "e"]
    assert merged.blocks.tolist() == [0, ~0, 1, ~1, ~0]


# -- parts of inputs -------------------------------------------------------------------------------------


def inputs(uris: list[str]) -> pa.Table:
    return pa.Table.from_pylist([{"uri": uri, "outcome": "record"} for uri in uris], INPUTS_SCHEMA)


def test_a_change_touches_the_parts_it_lies_in() -> None:
    uris = [f"a/{number:05}.jpg" for number in range(3000)]
    before = [part["uri"].to_pylist() for part in cut_inputs(inputs(uris), mean=100)]
    after = [
        part["uri"].to_pylist()
        for part in cut_inputs(inputs([*uris[:1500], "a/01500-new", *uris[1500:]]), mean=100)
    ]
    assert [uri for part in before for uri in part] == uris
    assert len(before) > 20
    assert sum(part not in before for part in after) <= 2


def test_parts_have_the_digest_of_their_rows_as_name(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    one = write_inputs(storage, "data/one", inputs(["a", "b"]))
    two = write_inputs(storage, "data/two", inputs(["a", "b"]))
    other = write_inputs(storage, "data/two", inputs(["a", "c"]))
    names = [part.path.rpartition("/")[2] for (part,) in (one, two, other)]
    assert names[0] == names[1] != names[2]
    (empty,) = write_inputs(storage, "data/none", inputs([]))
    assert empty.num_rows == 0


# -- shards that stay ------------------------------------------------------------------------------------


def held(ids: list[int], shards: list[int]) -> HeldShards:
    return HeldShards(
        ids=np.array(ids, np.uint64),
        shards=np.array(shards, np.int32),
        labels=np.zeros(len(ids), np.int32),
        splits=np.zeros(len(ids), np.int8),
        uris=pa.array([f"{number}.jpg" for number in ids]),
        groups=pa.array([None if number % 2 else "g" for number in ids], pa.string()),
        sizes=np.bincount(shards),
    )


@pytest.mark.parametrize(
    ("ids", "change", "inherited", "written"),
    [
        ([1, 2, 3, 4], {}, [0, 1], []),
        ([1, 2, 3, 4, 5], {}, [0, 1], [5]),
        ([1, 2, 3], {}, [0], [3]),
        ([1, 2, 3, 4], {"label": 3}, [0], [3, 4]),
        ([1, 2, 3, 4], {"split": 1}, [1], [1, 2]),
        ([1, 2, 3, 4], {"uri": 2}, [1], [1, 2]),
        ([1, 2, 3, 4], {"group": 1}, [1], [1, 2]),
        ([1, 2, 3, 4], {"group": 2}, [1], [1, 2]),
        ([], {}, [], []),
    ],
)
def test_a_shard_stays_where_all_its_records_are_wanted_as_they_are(
    ids: list[int], change: dict[str, int], inherited: list[int], written: list[int]
) -> None:
    before = held([1, 2, 3, 4], [0, 0, 1, 1])
    count = len(ids)
    labels = np.array([int(number == change.get("label")) for number in ids], np.int64)
    splits = np.array([int(number == change.get("split")) for number in ids], np.int8)
    uris = pa.chunked_array(
        [[f"{'new' if number == change.get('uri') else ''}{number}.jpg" for number in ids]], pa.string()
    )
    groups = pa.chunked_array(
        [["h" if number == change.get("group") else None if number % 2 else "g" for number in ids]],
        pa.string(),
    )
    numbers = np.array(ids, np.uint64)
    homes = before.homes(numbers, labels, splits, uris, groups)
    dealt = deal(numbers, labels, splits, np.ones(count, np.int64), PrepareConfig(), before, homes)
    assert dealt.inherited == inherited
    assert sorted(numbers[dealt.order].tolist()) == written
    assert sum(shard.length for shard in dealt.shards) == len(written)


@pytest.mark.parametrize(
    ("num_new", "asked", "expected"), [(1, 10, 1), (20, 12, 2), (50, 10, 3), (900, 10, 9)]
)
def test_a_number_of_shards_is_shared_out(num_new: int, asked: int, expected: int) -> None:
    ids = np.arange(100 + num_new, dtype=np.uint64)
    before = held(list(range(100)), [number // 25 for number in range(100)])
    homes = np.where(ids < 100, ids // 25, -1).astype(np.int64).astype(np.int32)
    config = PrepareConfig.model_validate({"shards": {"num_shards": asked}})
    zeros = np.zeros(len(ids), np.int64)
    dealt = deal(ids, zeros, zeros.astype(np.int8), zeros + 1, config, before, homes)
    assert dealt.inherited == [0, 1, 2, 3]
    assert len(dealt.shards) == expected
