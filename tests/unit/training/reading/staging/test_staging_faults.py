"""Staging beside other processes, and faults of the endpoint, the copies and the disk."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.infra import progress
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError, ShardmillError, StorageError
from shardmill.training.order import SequentialOrder
from shardmill.training.reading import load_table
from shardmill.training.reading.shard_reader import open_records
from shardmill.training.reading.staging.staging import Staging
from tests.samples.datasets.staged_set import fetched, sizes
from tests.samples.stores.object_store import KEY, SECRET, Fault, ObjectStore
from tests.samples.waiting import eventually


def test_a_shard_that_another_fetches_is_waited_for(
    version: DatasetVersion, store: ObjectStore, make: Callable[..., Staging]
) -> None:
    store.faults.append(Fault(".gz", seconds=0.3))
    context = multiprocessing.get_context("fork")
    shards = [shard.path for shard in version.shards("train")]
    stagings = [make() for _ in range(3)]
    readers = [context.Process(target=_read_all, args=(staging, shards)) for staging in stagings]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    assert [reader.exitcode for reader in readers] == [0, 0, 0]
    assert dict(fetched(store)) == dict.fromkeys((path.rsplit("/", 1)[-1] for path in shards), 1)


def _read_all(staging: Staging, paths: list[str]) -> None:
    for path in paths:
        assert len(staging.read(path, 0, 100)) == 100
    os._exit(0)


def test_what_a_killed_process_left_is_taken_over(
    version: DatasetVersion, store: ObjectStore, make: Callable[..., Staging], tmp_path: Path
) -> None:
    shard, other = version.shards("train")[:2]
    store.faults.append(Fault(shard.path, seconds=30))
    process = multiprocessing.get_context("fork").Process(target=_read_all, args=(make(), [shard.path]))
    process.start()
    partial = tmp_path / f"staged/set/{shard.sha256}.partial"
    assert eventually(lambda: partial.exists() and partial.stat().st_size == shard.num_bytes)
    process.kill()
    process.join()
    store.faults.clear()
    staging = make(max(sizes(version)))
    assert staging.read(other.path, 0, 10), "its room is taken back"
    assert not partial.exists()
    assert staging.read(shard.path, 0, 10)


def _flip(data: bytes) -> bytes:
    return data[:50] + bytes([data[50] ^ 1]) + data[51:]


@pytest.mark.parametrize(
    ("fault", "times"),
    [({"status": 503}, 1), ({"status": 500}, 5), ({"alter": _flip}, 1), ({"alter": _flip}, 2)],
)
def test_faults_that_pass_cost_an_attempt(
    version: DatasetVersion,
    store: ObjectStore,
    make: Callable[..., Staging],
    fault: dict[str, Any],
    times: int,
) -> None:
    shard = version.shards("train")[0]
    store.faults.append(Fault(shard.path, times=times, **fault))
    assert len(make().read(shard.path, 0, shard.num_bytes)) == shard.num_bytes
    assert store.faults[0].times == 0


def test_a_refused_request_is_made_once(
    version: DatasetVersion, store: ObjectStore, make: Callable[..., Staging]
) -> None:
    """Repeating it would cost time, and could lock the account out."""
    shard = version.shards("train")[0]
    store.faults.append(Fault(shard.path, status=403))
    with pytest.raises(StorageError):
        make().read(shard.path, 0, 10)
    assert fetched(store)[shard.path.rsplit("/", 1)[-1]] == 1


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ({"status": 403}, StorageError, "cannot read s3://staging/root/set/data/.*train-00000.*gz"),
        ({"alter": _flip}, CorruptDataError, "train-00000.*its SHA-256 differs from the manifest's"),
        ("missing", CorruptDataError, "set@1 is incomplete: no such file: s3://staging/.*train-00000"),
        ("short", CorruptDataError, r"train-00000.* has 10 bytes, the manifest of set@1 says \d+"),
    ],
)
def test_faults_that_stay_name_the_object(
    local: DatasetVersion,
    version: DatasetVersion,
    store: ObjectStore,
    make: Callable[..., Staging],
    tmp_path: Path,
    fault: Any,
    error: type[ShardmillError],
    message: str,
) -> None:
    shard = version.shards("train")[0]
    key = f"{store.bucket}/root/set/{shard.path}"
    if fault == "missing":
        store.filesystem().delete_file(key)
    elif fault == "short":
        with store.filesystem().open_output_stream(key, compression=None) as stream:
            stream.write(bytes(10))
    else:
        store.faults.append(Fault(shard.path, **fault))
    staging = make()
    with pytest.raises(error, match=message):
        staging.read(shard.path, 0, 10)
    assert not list((tmp_path / "staged").rglob("*.partial"))
    assert staging.read(version.shards("train")[1].path, 0, 10), "the others can be read"
    if isinstance(fault, str):
        store.upload(Path(local.storage.uri), "root/set")


def test_a_damaged_staged_copy_is_fetched_anew(
    version: DatasetVersion, make: Callable[..., Staging], tmp_path: Path
) -> None:
    table = load_table(version, "train")
    reader = open_records(version, table, make())
    wanted = reader.read(0)
    copy = tmp_path / f"staged/set/{version.shards('train')[0].sha256}.shard"
    with copy.open("r+b") as stream:
        stream.seek(int(table.offset_bytes[0]) + 40)
        stream.write(b"damage")
    heard: list[Any] = []
    unsubscribe = progress.subscribe(heard.append)
    try:
        assert reader.read(0) == wanted
        assert reader.read_images(np.array([0]))[0].shape == wanted.shape
    finally:
        unsubscribe()
    assert any("was damaged" in event.get("message", "") for event in heard)


def test_a_full_disk_says_so(
    version: DatasetVersion, make: Callable[..., Staging], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pwrite(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(StorageError, match=r"cannot write .*\.partial: No space left") as caught:
        make().read(version.shards("train")[0].path, 0, 1)
    assert "staging_bytes" in str(caught.value.remedy)


def test_nothing_shows_credentials(store: ObjectStore, tmp_path: Path) -> None:
    version = Catalog(store.location("root", credentials=f"{KEY}:{SECRET}@")).open("set")
    heard: list[Any] = []
    unsubscribe = progress.subscribe(heard.append)
    staging = Staging(version, tmp_path / "staged")
    shard = version.shards("train")[0]
    store.faults.append(Fault(shard.path, status=403))
    try:
        table = load_table(version, "train")
        staging.prefetch(SequentialOrder(len(table), 8), table, 0, 6)
        with pytest.raises(StorageError) as caught:
            staging.read(shard.path, 0, 1)
        assert eventually(lambda: any("not staged" in event.get("message", "") for event in heard))
    finally:
        unsubscribe()
        staging.close()
    shown = [str(caught.value), repr(version.storage), version.storage.uri, *map(repr, heard)]
    assert not [text for text in shown if SECRET in text or KEY in text]
    assert caught.value.__cause__ is None
    assert SECRET in pickle.loads(pickle.dumps(version.storage)).location, "it opens all the same"


def test_a_stopped_process_is_no_hang(
    version: DatasetVersion, make: Callable[..., Staging], tmp_path: Path
) -> None:
    """Another holds the locks and gives no sign of life."""
    shard = version.shards("train")[0]
    staging = make(stall_seconds=0.2)
    partial = tmp_path / f"staged/set/{shard.sha256}.partial"
    partial.parent.mkdir()
    with partial.open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match=r"another process fetches .*shows no progress"):
            staging.read(shard.path, 0, 1)
    with (tmp_path / "staged/.door").open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match=r"another process keeps .*\.door locked"):
            staging.read(shard.path, 0, 1)
    assert staging.read(shard.path, 0, 1)
