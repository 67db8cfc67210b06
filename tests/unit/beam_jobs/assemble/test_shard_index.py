"""A shard's index as it is written, and when it cannot be."""

from __future__ import annotations

import errno
import gc
import hashlib
import io
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardmill.beam_jobs.assemble.shard_index import HashedWriter, ShardIndex
from shardmill.beam_jobs.schemas import SPOOLED_PLAN_SCHEMA
from shardmill.infra.format.contract import INDEX_SCHEMA

CLASSES = ("a", "b")


def planned(count: int, label: int) -> pa.RecordBatch:
    """SPOOLED_PLAN_SCHEMA."""
    row = {"label": label, "stored_bytes": 7, "sha256": bytes(range(32)), "offset_bytes": 1 << 40}
    rows = [row | {"id": f"{number:016x}", "source_uri": f"{number}.jpg"} for number in range(count)]
    return pa.RecordBatch.from_pylist(rows, SPOOLED_PLAN_SCHEMA)


def test_an_index_says_where_records_lie_and_what_they_are() -> None:
    stream = io.BytesIO()
    out = HashedWriter(stream)
    with ShardIndex(out, array("q", range(5)), array("q", range(10, 15)), CLASSES) as index:
        index.add(planned(2, label=1))
        index.add(planned(3, label=0))
    assert (index.class_counts, index.payload_bytes) == ({"b": 2, "a": 3}, 35)
    assert (out.num_bytes, out.hexdigest()) == (
        len(stream.getvalue()),
        hashlib.sha256(stream.getvalue()).hexdigest(),
    )
    table = pq.read_table(io.BytesIO(stream.getvalue()))
    assert table.schema.equals(INDEX_SCHEMA)
    assert table["offset_bytes"].to_pylist() == [0, 1, 2, 3, 4]
    assert table["length_bytes"].to_pylist() == [10, 11, 12, 13, 14]
    assert table["sha256"].unique().to_pylist() == [bytes(range(32)).hex()]


class FullDisk(io.BytesIO):
    """Takes so many bytes."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self._most_bytes = most_bytes

    def write(self, data: bytes) -> int:
        if self.tell() + len(bytes(data)) > self._most_bytes:
            raise OSError(errno.ENOSPC, "no space left")
        return super().write(data)


def write_one(stream: BinaryIO, after: Callable[[], None] = lambda: None) -> None:
    """An index of one record, and something to happen before it ends."""
    with ShardIndex(HashedWriter(stream), array("q", [0]), array("q", [1]), CLASSES) as index:
        index.add(planned(1, label=0))
        after()


# Were Arrow's writer to complain when it is thrown away, a warning would fail these tests.


@pytest.mark.parametrize("most_bytes", [4, 40, 400])
def test_the_fault_of_a_full_disk_is_all_that_is_heard(most_bytes: int) -> None:
    with pytest.raises(OSError, match="no space left"):
        write_one(FullDisk(most_bytes))
    gc.collect()


def test_an_index_that_is_given_up_writes_no_end(tmp_path: Path) -> None:
    def give_up() -> None:
        raise RuntimeError("another fault")

    path = tmp_path / "index.parquet"
    with path.open("wb") as stream, pytest.raises(RuntimeError, match="another fault"):
        write_one(stream, give_up)
    gc.collect()
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(path)
