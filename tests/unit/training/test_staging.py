"""Staging from a real S3 endpoint: what is fetched, in which order, within the budget, and what faults do."""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infra import progress
from infra.catalog import Catalog, DatasetVersion
from infra.errors import ConfigError, CorruptDataError, ShardmillError, StorageError
from tests.samples.object_store import KEY, SECRET, Fault, ObjectStore, serve
from tests.samples.published import coloured, publish
from training.order import SequentialOrder, TrainingOrder
from training.order.blocks import BlockSizes
from training.reading import RecordReader, SplitTable, fetching, load_table
from training.reading.coming import Course, least_budget
from training.reading.staging import Staging

NUM_SHARDS = 6
COUNTS = {"train": {"a": 30, "b": 18}, "validation": {"a": 3, "b": 3}}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    root = tmp_path_factory.mktemp("datasets")
    return publish(root, coloured(COUNTS), name="set", shards_per_split=NUM_SHARDS)


@pytest.fixture(scope="module")
def server(local: DatasetVersion) -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        environment.setenv("AWS_ACCESS_KEY_ID", KEY)
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        with contextlib.contextmanager(serve)("staging") as running:
            running.upload(Path(local.storage.uri), "root/set")
            yield running


@pytest.fixture
def store(server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    server.faults.clear()
    server.gets.clear()
    monkeypatch.setattr(fetching, "RETRY_SECONDS", (0.01, 0.02))
    return server


@pytest.fixture
def version(store: ObjectStore) -> DatasetVersion:
    return Catalog(store.location("root")).open("set")


@pytest.fixture
def make(version: DatasetVersion, tmp_path: Path) -> Iterator[Callable[..., Staging]]:
    made: list[Staging] = []

    def staging(budget: int | None = None, **options: Any) -> Staging:
        made.append(Staging(version, tmp_path / "staged", budget, **options))
        return made[-1]

    yield staging
    for one in made:
        one.close()


def fetched(store: ObjectStore) -> Counter[str]:
    """Requests for each shard."""
    return Counter(path.rsplit("/", 1)[-1] for path in store.gets if path.endswith(".gz"))


def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


def sizes(version: DatasetVersion, split: str = "train") -> list[int]:
    return [shard.num_bytes for shard in version.shards(split)]


def test_records_through_the_staging_are_those_of_the_local_files(
    local: DatasetVersion, version: DatasetVersion, store: ObjectStore, make: Callable[..., Staging]
) -> None:
    table = load_table(version, "train")
    ordinals = np.arange(len(table))[::-1]
    wanted = RecordReader(local, load_table(local, "train")).read_many(ordinals)
    assert RecordReader(version, table, make()).read_many(ordinals) == wanted
    assert set(fetched(store).values()) == {1}
    assert len(fetched(store)) == NUM_SHARDS
    again = make()
    assert RecordReader(version, table, again).read_many(ordinals) == wanted
    assert again.num_fetched == 0
    assert RecordReader(version, table).read_many(ordinals[:3]) == wanted[:3], "by ranges, without staging"


def test_all_that_an_order_needs_is_there_ahead_of_use(
    version: DatasetVersion, store: ObjectStore, make: Callable[..., Staging]
) -> None:
    table = load_table(version, "train")
    order = TrainingOrder(table.label, seed=1, global_batch_size=8)
    staging = make()
    staging.follow(order, table, 0, 2 * order.steps_per_epoch)
    assert eventually(lambda: staging.num_fetched == NUM_SHARDS)
    store.gets.clear()
    RecordReader(version, table, staging).read_many(np.arange(len(table)))
    assert fetched(store) == {}
    assert staging.staged.used_bytes() == sum(sizes(version))


def test_a_small_budget_holds_the_coming_shards_in_order_of_need(
    version: DatasetVersion, store: ObjectStore, make: Callable[..., Staging]
) -> None:
    table = load_table(version, "train")
    order = SequentialOrder(len(table), 4)
    budget = 3 * max(sizes(version))
    staging = make(budget)
    reader = RecordReader(version, table, staging)
    reader.follow(order, 0, 2 * order.steps_per_epoch)
    assert eventually(lambda: staging.num_fetched == 3)
    for run_step in range(2 * order.steps_per_epoch):
        epoch, step = divmod(run_step, order.steps_per_epoch)
        reader.reached(epoch, step)
        plan = order.step(epoch, step)
        records = reader.read_many(plan.ordinals)
        assert [record.id for record in records] == table.ids(plan.ordinals)
        assert staging.staged.used_bytes() <= budget
        time.sleep(0.05)
    names = [path.rsplit("/", 1)[-1] for path in store.gets if path.endswith(".gz")]
    assert sorted(names[:3]) == sorted(path.rsplit("/", 1)[-1] for path in table.paths[:3])
    # Once an epoch; a step that comes sooner than what it needs may evict what another needs soon.
    assert len(names) <= 2 * NUM_SHARDS + 3


@pytest.mark.parametrize(("granularity", "budget"), [("record", 3), ("largest", 0)])
def test_a_budget_that_cannot_do_is_refused_with_advice(
    version: DatasetVersion, make: Callable[..., Staging], granularity: str, budget: int
) -> None:
    if granularity == "largest":
        with pytest.raises(ConfigError, match=r"staging_bytes = 100 cannot hold data/.*gz"):
            make(100)
        return
    table = load_table(version, "train")
    order = TrainingOrder(table.label, seed=1, global_batch_size=16)
    with pytest.raises(ConfigError, match=f"it needs {sum(sizes(version)):,} bytes") as caught:
        make(budget * max(sizes(version))).follow(order, table, 0, 9)
    assert 'data.granularity = "block"' in str(caught.value.remedy)


def test_by_blocks_a_small_budget_does(
    version: DatasetVersion, store: ObjectStore, make: Callable[..., Staging]
) -> None:
    table = load_table(version, "train")
    blocks = BlockSizes(block_records=len(table) // NUM_SHARDS, window_blocks=2)
    order = TrainingOrder(
        table.label, seed=1, global_batch_size=4, blocks=blocks, shard_sizes=table.shard_sizes
    )
    reader = RecordReader(version, table, make(5 * max(sizes(version))))
    reader.follow(order, 0, order.steps_per_epoch)
    for step in range(order.steps_per_epoch):
        reader.reached(0, step)
        reader.read_many(order.step(0, step).ordinals)
    assert len(fetched(store)) == NUM_SHARDS
    assert sum(fetched(store).values()) <= NUM_SHARDS + 1


@pytest.mark.parametrize(
    ("order", "least"),
    [
        (lambda labels, sizes: SequentialOrder(labels.size, 8), 2),
        (lambda labels, sizes: TrainingOrder(labels, seed=1, global_batch_size=8), 100),
        (
            lambda labels, sizes: TrainingOrder(
                labels, seed=1, global_batch_size=8, blocks=BlockSizes(50, 4), shard_sizes=sizes
            ),
            8,
        ),
    ],
    ids=["sequential", "by record", "by block"],
)
def test_the_least_budget_of_an_order(order: Any, least: int) -> None:
    """Of 100 shards of 50 records and a byte each: also where a few steps meet only some of the shards."""
    shard = np.repeat(np.arange(100, dtype=np.int32), 50)
    zeros = np.zeros(5000, np.int64)
    paths = tuple(f"{number}" for number in range(100))
    table = SplitTable("train", paths, shard, zeros, zeros, shard, shard, shard, zeros.astype("S16"))
    course = Course(order(shard * 0, np.full(100, 50)), table, 0, 600)
    found = least_budget(course, np.ones(100, np.int64))
    assert 1 <= found <= least
    assert (found == 100) is (least == 100)


def test_what_is_in_use_is_never_evicted(
    version: DatasetVersion, make: Callable[..., Staging], tmp_path: Path
) -> None:
    first, second, third = (shard.path for shard in version.shards("train")[:3])
    one, other = (make(2 * max(sizes(version)), stall_seconds=0.3) for _ in range(2))
    in_use = [one.open_local(first), one.open_local(second)]
    with pytest.raises(StorageError, match="all in it is in use") as caught:
        other.open_local(third)
    assert "staging_bytes" in str(caught.value.remedy)
    assert [os.pread(held.fileno(), 10, 0) for held in in_use]
    in_use.clear()
    one.close()
    assert other.read(third, 0, 10)
    names = {path.stem for path in (tmp_path / "staged").rglob("*.shard")}
    assert len(names) == 2
    assert version.shards("train")[2].sha256 in names


def test_a_shard_that_is_held_gives_way_to_what_is_needed_now(
    version: DatasetVersion, make: Callable[..., Staging]
) -> None:
    """A process keeps what it reads open; it lets go in time for another that shares the budget."""
    paths = [shard.path for shard in version.shards("train")]
    one, other = (make(max(sizes(version)), stall_seconds=20) for _ in range(2))
    for number in range(4):
        reader = (one, other)[number % 2]
        assert reader.read(paths[number % len(paths)], 0, 10)


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
    reader = RecordReader(version, table, make())
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
        staging.follow(SequentialOrder(len(table), 8), table, 0, 6)
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
