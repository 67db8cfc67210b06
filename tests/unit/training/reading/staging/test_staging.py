"""Staging from a real S3 endpoint: what is fetched, in which order, and within the budget."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError, StorageError
from shardmill.infra.storage.range_reader import Descriptor
from shardmill.training.order import SequentialOrder, TrainingOrder
from shardmill.training.order.blocks import BlockSizes
from shardmill.training.reading import SplitTable, load_table
from shardmill.training.reading.shard_reader import open_records
from shardmill.training.reading.staging.shard_lookahead import StepRange, least_budget
from shardmill.training.reading.staging.staging import Staging
from tests.samples.datasets.staged_set import NUM_SHARDS, fetched, sizes
from tests.samples.stores.object_store import ObjectStore
from tests.samples.waiting import eventually


def test_records_through_the_staging_are_those_of_the_local_files(
    local: DatasetVersion, version: DatasetVersion, store: ObjectStore, make: Callable[..., Staging]
) -> None:
    table = load_table(version, "train")
    ordinals = np.arange(len(table))[::-1]
    wanted = open_records(local, load_table(local, "train")).read_many(ordinals)
    assert open_records(version, table, make()).read_many(ordinals) == wanted
    assert set(fetched(store).values()) == {1}
    assert len(fetched(store)) == NUM_SHARDS
    again = make()
    assert open_records(version, table, again).read_many(ordinals) == wanted
    assert again.num_fetched == 0
    assert open_records(version, table).read_many(ordinals[:3]) == wanted[:3], "by ranges, without staging"


def test_all_that_an_order_needs_is_there_ahead_of_use(
    version: DatasetVersion, store: ObjectStore, make: Callable[..., Staging]
) -> None:
    table = load_table(version, "train")
    order = TrainingOrder(table.label, seed=1, global_batch_size=8)
    staging = make()
    staging.prefetch(order, table, 0, 2 * order.steps_per_epoch)
    assert eventually(lambda: staging.num_fetched == NUM_SHARDS)
    store.gets.clear()
    open_records(version, table, staging).read_many(np.arange(len(table)))
    assert fetched(store) == {}
    assert staging.staged.used_bytes() == sum(sizes(version))


def test_a_small_budget_holds_the_coming_shards_in_order_of_need(
    version: DatasetVersion, store: ObjectStore, make: Callable[..., Staging]
) -> None:
    table = load_table(version, "train")
    order = SequentialOrder(len(table), 4)
    budget = 3 * max(sizes(version))
    staging = make(budget)
    reader = open_records(version, table, staging)
    reader.prefetch(order, 0, 2 * order.steps_per_epoch)
    assert eventually(lambda: staging.num_fetched == 3)
    for run_step in range(2 * order.steps_per_epoch):
        epoch, step = divmod(run_step, order.steps_per_epoch)
        reader.advance(epoch, step)
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
        make(budget * max(sizes(version))).prefetch(order, table, 0, 9)
    assert "data.granularity=block" in str(caught.value.remedy)


def test_by_blocks_a_small_budget_does(
    version: DatasetVersion, store: ObjectStore, make: Callable[..., Staging]
) -> None:
    table = load_table(version, "train")
    blocks = BlockSizes(block_records=len(table) // NUM_SHARDS, window_blocks=2)
    order = TrainingOrder(
        table.label, seed=1, global_batch_size=4, blocks=blocks, shard_sizes=table.shard_sizes
    )
    reader = open_records(version, table, make(5 * max(sizes(version))))
    reader.prefetch(order, 0, order.steps_per_epoch)
    for step in range(order.steps_per_epoch):
        reader.advance(0, step)
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
    table = SplitTable("train", paths, shard, zeros, zeros, shard, shard, shard, zeros.astype(np.uint64))
    steps = StepRange(order(shard * 0, np.full(100, 50)), table, 0, 600)
    found = least_budget(steps, np.ones(100, np.int64))
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


def test_a_shard_stays_open_while_it_is_read(
    version: DatasetVersion, make: Callable[..., Staging], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another thread may let go of the shard between its opening and its reading."""
    staging = make()
    (tmp_path / "shard").write_bytes(b"0123456789")
    monkeypatch.setattr(staging, "open_local", lambda _: Descriptor(os.open(tmp_path / "shard", os.O_RDONLY)))
    assert staging.read(version.shards("train")[0].path, 2, 3) == b"234"
