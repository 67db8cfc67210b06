"""Blocks: where they are cut, and what names them."""

from __future__ import annotations

import heapq
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmill.beam_jobs.encode.blocks import (
    Block,
    block_digest,
    cut_blocks,
    facts_file,
    find_finished,
    finished_blocks,
    read_facts,
    write_facts,
    write_references,
)
from shardmill.beam_jobs.schemas import FACTS_SCHEMA, REFERENCE_SCHEMA, Status
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.storage.filesystem import Storage


def references(uris: list[str], size: int = 1) -> pa.Table:
    rows = [{"uri": uri, "size_bytes": size, "mtime_ns": 1, "label": "a", "split": None} for uri in uris]
    return pa.Table.from_pylist(rows, REFERENCE_SCHEMA)


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(0, 10**6), max_size=600),
    most=st.integers(1, 24),
    before=st.integers(0, 9),
    now=st.integers(0, 9),
    data=st.data(),
)
def test_blocks_hold_each_file_once_and_keep_what_is_finished(
    sizes: list[int], most: int, before: int, now: int, data: st.DataObject
) -> None:
    table = references([f"a/{number:07d}" for number in range(len(sizes))])
    table = table.set_column(1, "size_bytes", pa.array(sizes, pa.int64()))
    blocks = cut_blocks(table, most, before)
    finished = [block for block in blocks if data.draw(st.booleans())]
    again = cut_blocks(table, data.draw(st.integers(1, 24)), now, finished)
    assert set(finished) <= set(again)
    assert all(1 <= block.length <= most for block in blocks)
    for cut in (blocks, again):
        ends = [0, *(block.start + block.length for block in cut)]
        assert [block.start for block in cut] == ends[:-1]
        assert ends[-1] == len(sizes)


def test_processes_end_at_about_the_same_time() -> None:
    """Whichever process is free takes the next block."""
    sizes = np.random.default_rng(0).lognormal(10.2, 0.5, 30_000).astype(np.int64)
    table = references([f"a/{number:07d}" for number in range(len(sizes))])
    table = table.set_column(1, "size_bytes", pa.array(sizes))
    costs = (0.6 + sizes / 40_960) * np.random.default_rng(1).lognormal(0, 0.3, len(sizes))
    busy = [0.0] * 64
    blocks = cut_blocks(table, 128, len(busy))
    for block in blocks:
        heapq.heapreplace(busy, busy[0] + costs[block.start : block.start + block.length].sum())
    assert sum(busy) / (len(busy) * max(busy)) > 0.93
    assert len(blocks) < 500


@pytest.mark.parametrize("processes", [2, 5])
def test_finished_blocks_are_found_again(processes: int, tmp_path: Path) -> None:
    spool, uris = Storage.at(tmp_path), [f"a/{number:05d}" for number in range(200)]
    first = references(uris)
    assert find_finished(spool, first) == []
    blocks = cut_blocks(first, 16, 2)
    write_references(spool, first, blocks)
    for block in (blocks[1], blocks[2], blocks[-1]):
        write_facts(spool, block.digest, FACTS_SCHEMA.empty_table())
    within = uris[blocks[2].start + 1]
    changed = references(sorted({*uris, "a/00000b", f"{within}b"} - {uris[blocks[3].start]}))
    found = find_finished(spool, changed)
    assert [block.digest for block in found] == [blocks[1].digest, blocks[-1].digest]
    for block in found:
        assert block_digest(changed.slice(block.start, block.length)) == block.digest
    # A run that is killed again leaves these, too.
    write_references(spool, changed, cut_blocks(changed, 16, processes, found))
    assert find_finished(spool, changed) == found


def test_references_of_a_spool_that_was_half_removed_find_nothing(tmp_path: Path) -> None:
    table = references(["a/1", "a/2"])
    write_facts(Storage.at(tmp_path), cut_blocks(table, 8)[0].digest, FACTS_SCHEMA.empty_table())
    assert find_finished(Storage.at(tmp_path), table) == []
    (tmp_path / "references.arrow").write_bytes(b"ARROW1")
    assert find_finished(Storage.at(tmp_path), table) == []


def test_the_digest_sees_what_is_known_of_a_file() -> None:
    one = cut_blocks(references(["a/1", "a/2"]), 8)[0]
    assert cut_blocks(references(["a/1", "a/2"]), 8)[0] == one
    assert cut_blocks(references(["a/1", "a/2"], size=2), 8)[0].digest != one.digest
    assert cut_blocks(references(["a/1", "a/3"]), 8)[0].digest != one.digest


def test_the_digest_of_a_block_does_not_depend_on_its_place() -> None:
    uris = [f"a/{number:05d}" for number in range(300)]
    table = references(uris)
    chunked = pa.concat_tables([table.slice(0, 17), table.slice(17, 200), table.slice(217)])
    assert cut_blocks(chunked, 16) == cut_blocks(table, 16)


def test_workers_find_the_references_of_a_table_in_chunks(tmp_path: Path) -> None:
    """URIs of more than 2 GiB are in several chunks, which a block may cross."""
    table = references([f"a/{number:05d}" for number in range(60)])
    blocks = cut_blocks(table, 8)
    border = blocks[2].start + 1
    for name, rows in (
        ("one", table),
        ("two", pa.concat_tables([table.slice(0, border), table.slice(border)])),
    ):
        write_references(Storage.at(tmp_path / name), rows, blocks)
    written = [(tmp_path / name / "references.arrow").read_bytes() for name in ("one", "two")]
    assert written[0] == written[1]


def test_workers_find_their_references(tmp_path: Path) -> None:
    table = references([f"a/{number:05d}" for number in range(100)])
    blocks = cut_blocks(table, 8)
    spool = Storage.at(tmp_path)
    write_references(spool, table, blocks)
    reader = pa.ipc.open_file(spool.open_input("references.arrow"))
    assert reader.num_record_batches == len(blocks)
    assert (
        reader.get_batch(2)["uri"].to_pylist()
        == table["uri"][blocks[2].start :][: blocks[2].length].to_pylist()
    )


def test_facts_are_found_again_and_checked(tmp_path: Path) -> None:
    spool = Storage.at(tmp_path)
    empty = pa.Table.from_pylist([{"status": Status.QUARANTINED}] * 3, FACTS_SCHEMA)
    write_facts(spool, "feed", empty)
    assert finished_blocks(spool) == {"feed"}
    assert read_facts(spool, Block("feed", 0, 3)) == empty
    with pytest.raises(CorruptDataError, match="3 rows, its block 4"):
        read_facts(spool, Block("feed", 0, 4))
    with pytest.raises(CorruptDataError, match="not encoded"):
        read_facts(spool, Block("cafe", 0, 4))
    (tmp_path / facts_file("feed")).write_bytes(b"no arrow file")
    with pytest.raises(CorruptDataError, match="not readable"):
        read_facts(spool, Block("feed", 0, 3))
