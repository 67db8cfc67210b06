"""An export that is interrupted leaves nothing half-written visible, and continues to the same files."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmill.infra.dataset.exports.export import export
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import Cancelled, CorruptDataError, LockedError, UsageError
from shardmill.infra.storage.filesystem import Storage
from tests.samples.datasets.published import coloured, publish
from tests.samples.stores.object_store import ObjectStore, serve

PICTURES = coloured({"train": {"fox": 20, "owl": 16}, "test": {"owl": 4}})


@pytest.fixture
def version(tmp_path: Path) -> DatasetVersion:
    return publish(tmp_path / "sets", PICTURES, name="birds", shards_per_split=4)


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as environment, serve("exports") as running:
        environment.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "top-secret-of-tests")
        yield running


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def cancel_after(num_records: int) -> object:
    def told(done: int, total: int) -> None:
        if done >= num_records:
            raise Cancelled("stopped")

    return told


@pytest.mark.parametrize("name", ["webdataset", "folder", "tfds"])
def test_a_stopped_export_continues_and_ends_in_the_same_files(
    tmp_path: Path, version: DatasetVersion, name: str
) -> None:
    export(version, tmp_path / "whole", name)
    out = tmp_path / "out"
    for num_records in (5, 25):
        with pytest.raises(Cancelled):
            export(version, out, name, on_progress=cancel_after(num_records))  # type: ignore[arg-type]
        assert not out.exists()
    notes = list((tmp_path / ".out.exporting" / ".shardmill").glob("*-of-*.json"))
    assert 0 < len(notes) < 8
    told: list[int] = []
    made = export(version, out, name, on_progress=lambda done, total: told.append(done))
    assert told[-1] == 40
    assert contents(out) == contents(tmp_path / "whole")
    again = export(version, out, name)
    assert (again.unchanged, again.summary) == (True, made.summary)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "sets", "whole"]


_KILLED = """
import os, signal, sys
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.exports.export import export

def told(done, total):
    if done >= 12:
        os.kill(os.getpid(), signal.SIGKILL)

export(Catalog(sys.argv[1]).open("birds"), sys.argv[2], "parquet", on_progress=told)
"""


def test_a_killed_export_continues_and_ends_in_the_same_files(
    tmp_path: Path, version: DatasetVersion
) -> None:
    command = [sys.executable, "-c", _KILLED, str(tmp_path / "sets"), str(tmp_path / "out")]
    done = subprocess.run(command, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    export(version, tmp_path / "out", "parquet")
    export(version, tmp_path / "whole", "parquet")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_the_rest_of_another_export_is_not_taken_over(tmp_path: Path, version: DatasetVersion) -> None:
    with pytest.raises(Cancelled):
        export(version, tmp_path / "out", "folder", on_progress=cancel_after(25))  # type: ignore[arg-type]
    export(version.query("label == 'owl'"), tmp_path / "out", "folder")
    assert {path.name for path in (tmp_path / "out/train").iterdir()} == {"owl"}


def test_a_file_that_a_power_cut_emptied_is_written_again(tmp_path: Path, version: DatasetVersion) -> None:
    with pytest.raises(Cancelled):
        export(version, tmp_path / "out", "webdataset", on_progress=cancel_after(25))  # type: ignore[arg-type]
    begun = tmp_path / ".out.exporting"
    for note in (begun / ".shardmill").glob("*-of-*.json"):
        (begun / f"{note.stem}.tar").write_bytes(b"")
    export(version, tmp_path / "out", "webdataset")
    export(version, tmp_path / "whole", "webdataset")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_two_processes_do_not_write_the_same_export(tmp_path: Path, version: DatasetVersion) -> None:
    begun = Storage.at(tmp_path / ".out.exporting")
    with begun.exclusive_lock(".shardmill/lock"), pytest.raises(LockedError, match="the same export"):
        export(version, tmp_path / "out", "parquet")


def test_damage_ends_the_export_and_names_the_shard(tmp_path: Path, version: DatasetVersion) -> None:
    shard = version.manifest.shards[2]
    path = tmp_path / "sets" / "birds" / shard.path
    data = bytearray(path.read_bytes())
    data[-20] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(CorruptDataError, match=path.name):
        export(version, tmp_path / "out", "parquet")
    assert [found.name for found in tmp_path.iterdir()] == ["sets"]


@pytest.mark.parametrize("name", ["array_record", "folder"])
def test_an_object_store_gets_the_same_files_and_the_summary_last(
    tmp_path: Path, version: DatasetVersion, store: ObjectStore, name: str
) -> None:
    place = store.location(f"out-{name}")
    with pytest.raises(Cancelled):
        export(version, place, name, on_progress=cancel_after(25))  # type: ignore[arg-type]
    assert f"out-{name}/export.json" not in store.all_keys(f"out-{name}")
    export(version, place, name)
    export(version, tmp_path / "whole", name)
    there = Storage.at(place)
    found = {entry.path: there.read_bytes(entry.path) for entry in there.list_files()}
    assert found == contents(tmp_path / "whole")
    assert export(version, place, name).unchanged
    with pytest.raises(UsageError, match="holds other files"):
        export(version, place, "parquet")
