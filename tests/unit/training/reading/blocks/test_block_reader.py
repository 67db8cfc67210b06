"""Blocks as ranges: the same records by one read a block, ahead of use, within bounds, and what faults do."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError, CorruptDataError, StorageError
from shardmill.infra.format.records import CONTAINERS
from shardmill.infra.storage.range_reader import RangeReader
from shardmill.training.order import BlockSizes, Passes, SequentialOrder, TrainingOrder
from shardmill.training.reading import BatchMaker, RecordReader, load_table
from shardmill.training.reading.batch_maker import NumpyBatches
from shardmill.training.reading.blocks.stored import StoredBlocks, by_block
from shardmill.training.reading.shard_reader import ShardReader, open_records
from tests.samples.datasets.published import coloured, publish
from tests.samples.datasets.range_reads import note_reads
from tests.samples.stores.object_store import ObjectStore, serve_version
from tests.samples.waiting import block_threads_end

NUM_SHARDS = 4
COUNTS = {"train": {"a": 60, "b": 36}}
SIZES = BlockSizes(block_records=6, window_blocks=4)
BATCH = 8
NUM_BLOCKS = 16
NUM_WINDOWS = 4
STEPS = 12


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    return publish(tmp_path_factory.mktemp("sets"), coloured(COUNTS), name="set", shards_per_split=NUM_SHARDS)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    return note_reads(monkeypatch)


def order_of(version: DatasetVersion, seed: int = 1, batch: int = BATCH, **options: Any) -> TrainingOrder:
    table = load_table(version, "train")
    return TrainingOrder(
        table.label,
        seed=seed,
        global_batch_size=batch,
        blocks=options.pop("blocks", SIZES),
        shard_sizes=table.shard_sizes,
        **options,
    )


def opened(version: DatasetVersion, order: TrainingOrder | SequentialOrder) -> ShardReader:
    reader = by_block(open_records(version, load_table(version, "train")), order, 1 << 30)
    assert isinstance(reader, ShardReader)
    return reader


def held_bytes(reader: RecordReader) -> int:
    assert isinstance(reader, ShardReader)
    assert isinstance(reader.stored, StoredBlocks)
    return reader.stored.held_bytes


def batches(reader: RecordReader, order: TrainingOrder, start: int, stop: int, **rank: Any) -> NumpyBatches:
    return NumpyBatches(
        BatchMaker(reader, image_size=16, threads=3), order, Passes(range(start, stop)), **rank
    )


@pytest.mark.parametrize("container", CONTAINERS)
def test_two_epochs_and_a_resumed_run_give_the_same_by_one_read_a_block(
    tmp_path: Path, container: Any, reads: list[tuple[str, int, int]]
) -> None:
    version = publish(tmp_path, coloured(COUNTS), container=container, shards_per_split=NUM_SHARDS)
    order = order_of(version)
    table = load_table(version, "train")
    wanted = list(batches(open_records(version, table), order, 0, 2 * STEPS))
    reads.clear()
    reader = opened(version, order)
    found = list(batches(reader, order, 0, 2 * STEPS))
    # At the end of an epoch, what both its last window and the next have in common is not read again.
    assert 2 * NUM_BLOCKS - SIZES.window_blocks <= len(reads) <= 2 * NUM_BLOCKS
    assert sum(length for _, _, length in reads[:NUM_BLOCKS]) == table.length_bytes.sum()
    reader.close()
    assert block_threads_end()
    resumed = list(batches(opened(version, order), order, 17, 2 * STEPS))
    for ours, theirs in ((found, wanted), (resumed, wanted[17:])):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert (one.epoch, one.step) == (other.epoch, other.step)
            assert np.array_equal(one.ordinals, other.ordinals)
            assert np.array_equal(one.images, other.images)


def test_each_block_is_read_once_an_epoch_and_by_one_range(
    version: DatasetVersion, reads: list[tuple[str, int, int]]
) -> None:
    order = order_of(version)
    reader = opened(version, order)
    for batch in batches(reader, order, 0, STEPS):
        assert held_bytes(reader) <= reader.windows.num_bytes, batch.step
    table = reader.table
    assert len(reads) == len(set(reads)) == NUM_BLOCKS
    assert sum(length for _, _, length in reads) == table.length_bytes.sum()
    starts = {
        (table.paths[s], o) for s, o in zip(table.shard.tolist(), table.offset_bytes.tolist(), strict=True)
    }
    assert {(path, offset) for path, offset, _ in reads} <= starts
    assert 0 < held_bytes(reader) < table.length_bytes.sum() / 2
    reader.close()
    assert held_bytes(reader) == 0


def test_a_run_that_begins_in_the_middle_reads_no_window_before_it_and_none_after_its_end(
    version: DatasetVersion, reads: list[tuple[str, int, int]]
) -> None:
    order = order_of(version)
    first, stop = STEPS // 2, 3 * STEPS // 4  # the third of four windows
    assert len(list(batches(opened(version, order), order, first, stop))) == stop - first
    assert len(reads) == SIZES.window_blocks


def test_nothing_is_read_before_a_record_is_asked_for(
    version: DatasetVersion, reads: list[tuple[str, int, int]]
) -> None:
    order = order_of(version)
    reader = opened(version, order)
    reader.prefetch(order, 0, STEPS)
    reader.advance(0, 0)
    assert reads == []
    plan = order.step(0, 0)
    reader.read(int(plan.ordinals[0]))
    assert block_threads_end(), "they end when all is read"
    assert len(reads) == 2 * SIZES.window_blocks, "the window in use, and the next"


def test_records_out_of_sequence_are_read_alone(
    version: DatasetVersion, reads: list[tuple[str, int, int]]
) -> None:
    order = order_of(version)
    reader = opened(version, order)
    plain = open_records(version, reader.table)
    every = np.arange(len(reader.table))
    assert reader.read_many(every[:3]) == plain.read_many(every[:3])
    assert len(reads) == 6, "nobody has said where the run is"
    reader.advance(-1, -1)
    assert reader.read(5) == plain.read(5)
    reader.advance(0, 0)
    found = [image.image for image in reader.read_images(every)]
    assert [bytes(image) for image in found] == [record.image for record in plain.read_many(every)]


def test_late_steps_and_a_run_that_begins_anew(
    version: DatasetVersion, reads: list[tuple[str, int, int]]
) -> None:
    order = order_of(version)
    reader = opened(version, order)

    def read(epoch: int, step: int) -> int:
        """Reads that a step has taken, with those ahead of use."""
        before, ordinals = len(reads), order.step(epoch, step).ordinals
        reader.advance(epoch, step)
        found = reader.read_images(ordinals)
        assert [(image.shape[0], image.shape[1]) for image in found] == list(
            zip(reader.table.height[ordinals].tolist(), reader.table.width[ordinals].tolist(), strict=True)
        )
        assert block_threads_end()
        return len(reads) - before

    assert read(0, 0) == 2 * SIZES.window_blocks
    assert read(0, 6) == SIZES.window_blocks, "the third window; the second is kept for two steps more"
    assert read(0, 0) == BATCH, "late: its window is gone, and the others stay"
    assert read(0, 7) == 0
    read(9, 0)
    assert read(0, 0) <= 2 * SIZES.window_blocks, "from the beginning, but for blocks that are held"
    assert read(0, 1) == 0


def test_padding_of_a_last_step(version: DatasetVersion, reads: list[tuple[str, int, int]]) -> None:
    order = order_of(version, batch=20)
    wanted = [
        batch.images.copy()
        for batch in batches(open_records(version, load_table(version, "train")), order, 0, 5)
    ]
    reads.clear()
    found = [batch.images.copy() for batch in batches(opened(version, order), order, 0, 5)]
    assert np.array_equal(found, wanted)
    assert NUM_BLOCKS <= len(reads) <= NUM_BLOCKS + 4, "four examples of padding"


def test_ranks_and_threads_share_nothing_and_lose_nothing(version: DatasetVersion) -> None:
    order = order_of(version)
    reader = opened(version, order)

    def seen(rank: int) -> list[int]:
        mine = batches(reader, order, 0, 2 * STEPS, rank=rank, num_ranks=4)
        return [ordinal for batch in mine for ordinal in batch.ordinals.tolist()]

    with ThreadPoolExecutor(4) as pool:
        counts = Counter(ordinal for part in pool.map(seen, range(4)) for ordinal in part)
    assert counts == dict.fromkeys(range(len(reader.table)), 2)
    reader.close()
    assert block_threads_end()


def test_damage_is_named_as_by_the_plain_reader(tmp_path: Path) -> None:
    version = publish(tmp_path, coloured(COUNTS), shards_per_split=NUM_SHARDS)
    order = order_of(version)
    table = load_table(version, "train")
    reader, another = opened(version, order), opened(version, order)
    flipped, cut = 3, len(table) - 1
    first, last = (version.storage.local_path(path) for path in (table.paths[0], table.paths[-1]))
    assert first is not None
    assert last is not None
    data = bytearray(first.read_bytes())
    data[int(table.offset_bytes[flipped]) + 60] ^= 0x40
    first.write_bytes(bytes(data))
    last.write_bytes(last.read_bytes()[:-9])
    plain = open_records(version, table)
    reader.advance(0, 0)
    bad: dict[int, CorruptDataError] = {}
    for run_step in range(STEPS):
        reader.advance(0, run_step)
        for ordinal in order.step(0, run_step).ordinals.tolist():
            try:
                reader.read_images(np.array([ordinal]))
            except CorruptDataError as error:
                bad[ordinal] = error
    assert sorted(bad) == [flipped, cut]
    for ordinal, found in bad.items():
        with pytest.raises(CorruptDataError) as caught:
            plain.read(ordinal)
        assert (found.message, found.remedy) == (caught.value.message, caught.value.remedy)
    with pytest.raises(CorruptDataError, match="|".join(table.ids(np.array([flipped, cut])))):
        list(batches(another, order, 0, STEPS))


def test_a_shard_that_is_gone_fails_in_the_reader_that_asks(tmp_path: Path) -> None:
    version = publish(tmp_path, coloured(COUNTS), shards_per_split=NUM_SHARDS)
    order = order_of(version)
    reader = opened(version, order)
    gone = version.storage.local_path(reader.table.paths[1])
    assert gone is not None
    gone.unlink()
    with pytest.raises(CorruptDataError, match=r"train-00001-of-00004.*no such file"):
        list(batches(reader, order, 0, STEPS))
    reader.close()
    assert block_threads_end()


def test_a_window_that_could_not_be_read_ahead_is_read_by_whoever_needs_it(
    version: DatasetVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = order_of(version)
    reader = opened(version, order)
    plain, failures = RangeReader.read, Counter[str]()

    def read(self: RangeReader, path: str, offset: int, length: int) -> bytes:
        if length > reader.table.length_bytes.max():
            failures["blocks"] += 1
            raise StorageError("the network is gone") if failures["blocks"] % 2 else OSError("so is this")
        return plain(self, path, offset, length)

    monkeypatch.setattr(RangeReader, "read", read)
    seen = [ordinal for batch in batches(reader, order, 0, STEPS) for ordinal in batch.ordinals.tolist()]
    assert sorted(seen) == list(range(len(reader.table)))
    assert failures["blocks"] == NUM_BLOCKS


def test_copies_for_other_processes_have_windows_of_their_own(
    version: DatasetVersion, reads: list[tuple[str, int, int]]
) -> None:
    order = order_of(version)
    reader = opened(version, order)
    first = next(iter(batches(reader, order, 0, STEPS))).ordinals
    for other in (pickle.loads(pickle.dumps(reader)), reader.reopened()):
        assert held_bytes(other) == 0
        assert block_threads_end()
        reads.clear()
        assert np.array_equal(next(iter(batches(other, order, 0, STEPS))).ordinals, first)
        assert 0 < len(reads) <= NUM_BLOCKS


def test_windows_go_with_their_reader(version: DatasetVersion) -> None:
    order = order_of(version)
    reader = opened(version, order)
    list(batches(reader, order, 0, STEPS))
    assert block_threads_end()
    gc.disable()
    try:
        held = weakref.ref(reader.stored)
        del reader
        assert held() is None, "without waiting for the garbage collector"
    finally:
        gc.enable()


def test_who_gets_windows_and_how_much_they_may_take(version: DatasetVersion) -> None:
    order = order_of(version)
    records = open_records(version, load_table(version, "train"))
    window_bytes = opened(version, order).windows.num_bytes
    share = records.table.length_bytes.sum() / NUM_WINDOWS
    assert 2 * share <= window_bytes <= 3 * share + 1000, (
        "two windows, or three where three steps reach so far"
    )
    with pytest.raises(ConfigError, match=f"{window_bytes:,} bytes") as caught:
        by_block(records, order, window_bytes - 1)
    assert "window_blocks" in str(caught.value.remedy)
    for other in (order_of(version, blocks=None), SequentialOrder(len(records.table), BATCH)):
        assert by_block(records, other, 1) is records
    across = TrainingOrder(records.table.label, seed=1, global_batch_size=BATCH, blocks=BlockSizes(7, 4))
    assert by_block(records, across, 1 << 30) is records, "blocks that reach over the end of a shard"


@pytest.fixture(scope="module")
def store(version: DatasetVersion) -> Iterator[ObjectStore]:
    with serve_version(version, "blocks") as running:
        yield running


def test_an_object_store_is_asked_once_a_block(version: DatasetVersion, store: ObjectStore) -> None:
    remote = Catalog(store.location("root")).open("set")
    order = order_of(remote)
    reader = opened(remote, order)
    wanted = list(batches(open_records(version, load_table(version, "train")), order, 0, STEPS))

    def requests(make: Callable[[], Iterator[Any]]) -> int:
        before = len(store.gets)
        for one, other in zip(make(), wanted, strict=True):
            assert np.array_equal(one.images, other.images)
        return len(store.gets) - before

    assert requests(lambda: iter(batches(reader, order, 0, STEPS))) == NUM_BLOCKS
    plain = open_records(remote, reader.table)
    assert requests(lambda: iter(batches(plain, order, 0, STEPS))) == len(reader.table)
    reader.close()
    assert block_threads_end()
