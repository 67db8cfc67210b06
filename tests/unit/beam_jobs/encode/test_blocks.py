"""Blocks: where they are cut, and what names them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmill.beam_jobs.encode.blocks import (
    Block,
    cut_blocks,
    facts_file,
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
@given(st.sets(st.integers(0, 10**6), min_size=400, max_size=900), st.integers(0, 10**6), st.integers(4, 24))
def test_an_added_file_changes_few_blocks(numbers: set[int], extra: int, mean: int) -> None:
    before = cut_blocks(references([f"a/{number:07d}" for number in sorted(numbers - {extra})]), mean)
    after = cut_blocks(references([f"a/{number:07d}" for number in sorted(numbers | {extra})]), mean)
    changed = {block.digest for block in after} - {block.digest for block in before}
    # The cuts meet again where both may cut; that takes less than two blocks in the mean, now and then more.
    assert 1 <= len(changed) <= 12


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
