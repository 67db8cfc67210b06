"""Parquet files are read the same from every source, and leave no thread behind that holds Python objects."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardmill.infra.dataset.version import read_parquet

TABLE = pa.table({"id": [f"{number:04x}" for number in range(1000)], "label": list(range(1000))})

_COUNT_THREADS = """
import os, sys
from pathlib import Path
from shardmill.infra.dataset.version import read_parquet
data = Path(sys.argv[1]).read_bytes()
before = len(os.listdir("/proc/self/task"))
assert read_parquet(data).num_rows == 1000
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "table.parquet"
    pq.write_table(TABLE, path)
    return path


@pytest.mark.parametrize("columns", [None, ["label"], ["label", "id"]])
def test_bytes_and_files_give_the_same_table(file: Path, columns: list[str] | None) -> None:
    wanted = TABLE if columns is None else TABLE.select(columns)
    data = file.read_bytes()
    assert read_parquet(data, columns).equals(wanted)
    assert read_parquet(pa.OSFile(str(file)), columns).equals(wanted)
    assert read_parquet(pa.PythonFile(io.BytesIO(data), mode="r"), columns).equals(wanted)


def test_other_bytes_are_refused() -> None:
    with pytest.raises(pa.ArrowException):
        read_parquet(b"no Parquet at all")


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads through /proc")
def test_bytes_are_read_without_threads_of_arrow(file: Path) -> None:
    command = [sys.executable, "-c", _COUNT_THREADS, str(file)]
    started = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert int(started) == 0
