"""``open_dataset(...).grain``: sources and a sampler for the loaders of Grain, and their checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grain
import numpy as np
import pytest
from absl import flags

from shardmill import Dataset, open_dataset
from shardmill.infra.errors import CorruptDataError, UsageError
from shardmill.training.order import rank_slice
from tests.samples.datasets.published import coloured, publish

COUNTS = {"train": {"a": 31, "b": 18}, "test": {"a": 5, "b": 3}}
OPTIONS: dict[str, Any] = {"batch_size": 8, "image_size": 16, "seed": 5, "balance": "uniform"}


@pytest.fixture(scope="module", autouse=True)
def _flags() -> None:
    flags.FLAGS.mark_as_parsed()  # Grain's workers ask for them


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datasets")
    publish(folder, coloured(COUNTS, size=(30, 40)), name="set", shards_per_split=3)
    return folder


@pytest.fixture(scope="module")
def dataset(root: Path) -> Dataset:
    return open_dataset("set", root=root)


def loader(read: Any, workers: int = 0, **options: Any) -> grain.DataLoader:
    return grain.DataLoader(
        data_source=read.source,
        sampler=read.sampler,
        shard_options=grain.sharding.NoSharding(),
        worker_count=workers,
        read_options=grain.ReadOptions(num_threads=2, prefetch_buffer_size=4),
        **options,
    )


def check_same(element: dict[str, Any], batch: Any) -> None:
    """A batch of Grain is that of every other reader."""
    assert element["image"].dtype == np.uint8
    for name, wanted in {
        "image": batch.images,
        "label": batch.labels,
        "weight": batch.weights,
        "size": batch.sizes,
        "ordinal": batch.ordinals,
        "position": batch.positions,
        "epoch": np.full(len(batch), batch.epoch),
        "step": np.full(len(batch), batch.step),
    }.items():
        np.testing.assert_array_equal(element[name], wanted, err_msg=name)
        assert element[name].dtype == wanted.dtype


def test_examples_are_those_of_the_batches(dataset: Dataset) -> None:
    wanted = list(dataset.batches("train", epochs=2, **OPTIONS))
    read = dataset.grain("train", epochs=2, **OPTIONS)
    assert isinstance(read.source, grain.sources.RandomAccessDataSource)
    assert len(read.source) == len(read.records) == len(read.sampler) == 2 * 6 * 8
    batched = [grain.transforms.Batch(read.batch_size)]
    for element, batch in zip(loader(read, operations=batched), wanted, strict=True):
        check_same(element, batch)
    # The other interface of Grain batches before it deals to workers, and needs no sampler.
    by_index = grain.MapDataset.source(read.source).batch(8)
    for step in (11, 0, 5):
        check_same(by_index[step], wanted[step])


def test_records_are_stored_bytes_in_the_same_order(dataset: Dataset) -> None:
    read = dataset.grain("train", **OPTIONS)
    reader = dataset.reader("train")
    ordinals = [o for batch in dataset.batches("train", **OPTIONS) for o in batch.ordinals.tolist()]
    assert [read.records[place] for place in range(48)] == [reader.read(ordinal) for ordinal in ordinals]
    stored = dataset.grain("test", batch_size=3).records
    assert [record.id for record in stored] == dataset.table("test").ids(np.arange(8))


class Noise(grain.transforms.RandomMap):
    """An augmentation of a user."""

    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return element | {"noise": rng.integers(1 << 30)}


def test_worker_processes_keep_the_steps_and_go_on_from_a_state(dataset: Dataset) -> None:
    wanted = list(dataset.batches("train", epochs=2, **OPTIONS))
    read = dataset.grain("train", epochs=2, batched=True, **OPTIONS)
    batches = iter(loader(read, workers=2, operations=[Noise()]))
    noise = []
    for batch in wanted[:5]:
        check_same(element := next(batches), batch)
        noise.append(element["noise"])
    assert noise == [element["noise"] for element in loader(read, operations=[Noise()])][:5]
    state = batches.get_state()
    del batches
    # The state of a process is good for any number of them: here rank 1 of 3 goes on.
    rank = {"rank": 1, "num_ranks": 3}
    again = iter(loader(dataset.grain("train", epochs=2, batched=True, **rank, **OPTIONS), workers=2))
    again.set_state(state)
    theirs = list(dataset.batches("train", step=5, epochs=2, **rank, **OPTIONS))
    assert len(theirs) == 7
    for element, batch in zip(again, theirs, strict=True):
        check_same(element, batch)
    other = iter(loader(dataset.grain("train", batched=True, **(OPTIONS | {"seed": 6})), workers=2))
    with pytest.raises(ValueError, match="Sampler in checkpoint does not match"):
        other.set_state(state)


def test_examples_go_on_from_a_state_too(dataset: Dataset) -> None:
    read = dataset.grain("train", **OPTIONS)
    examples = iter(loader(read))
    before = [next(examples)["position"] for _ in range(5)]
    state = examples.get_state()
    again = iter(loader(dataset.grain("train", **OPTIONS)))
    again.set_state(state)
    assert before == [*range(5)]
    assert [element["position"] for element in again] == [*range(5, 48)]
    thirds = iter(loader(dataset.grain("train", rank=0, num_ranks=3, **OPTIONS)))
    with pytest.raises(ValueError, match="does not match"):  # an index counts the examples of a rank
        thirds.set_state(state)


@pytest.mark.parametrize(("num_ranks", "batch_size"), [(1, 3), (3, 3), (5, 3), (3, 5)])
@pytest.mark.parametrize("last_batch", ["pad", "drop", "partial"])
def test_ranks_divide_every_step_also_the_last(
    dataset: Dataset, num_ranks: int, batch_size: int, last_batch: str
) -> None:
    told: dict[str, Any] = {"batch_size": batch_size, "image_size": 8, "last_batch": last_batch}
    for rank in range(num_ranks):
        own = told | {"rank": rank, "num_ranks": num_ranks}
        wanted = list(dataset.batches("test", **own))
        read = dataset.grain("test", **own)
        assert read.batch_size == len(range(batch_size)[rank_slice(batch_size, rank, num_ranks)])
        found = [(element["ordinal"], element["weight"]) for element in read.source]
        assert found == [pair for batch in wanted for pair in zip(batch.ordinals, batch.weights, strict=True)]
        whole = dataset.grain("test", batched=True, **own).source
        assert [element["ordinal"].tolist() for element in whole] == [b.ordinals.tolist() for b in wanted]


def test_the_generator_of_a_place_is_the_same_in_every_rank(dataset: Dataset) -> None:
    whole = dataset.grain("train", first_epoch=1, **OPTIONS).sampler
    numbers = [whole[place].rng.integers(1 << 30) for place in range(48)]
    assert len(set(numbers)) == 48
    half = dataset.grain("train", first_epoch=1, step=2, rank=1, num_ranks=2, **OPTIONS).sampler
    assert [half[place].rng.integers(1 << 30) for place in range(4)] == numbers[20:24]
    for wrong in (-1, 48):
        with pytest.raises(IndexError, match=f"place {wrong} of 48"):
            whole[wrong]


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_damaged_records_are_named_and_left_out_of_whole_steps(tmp_path: Path, workers: int) -> None:
    version = publish(tmp_path, coloured({"train": {"a": 9}}), name="set")
    shard = tmp_path / "set" / version.manifest.shards[0].path
    data = bytearray(shard.read_bytes())
    data[40] ^= 255
    shard.write_bytes(data)
    told: dict[str, Any] = {"batch_size": 3, "image_size": 8}
    with pytest.raises(CorruptDataError, match=r"record \w+ at byte 0 of .*shardmill verify"):
        list(loader(open_dataset("set", tmp_path).grain("train", **told), workers))
    lenient = open_dataset("set", tmp_path, max_bad_records=1)
    with pytest.raises(UsageError, match=r"whole steps.*batched=True"):
        lenient.grain("train", **told)
    found = list(loader(lenient.grain("train", batched=True, **told)))
    for element, batch in zip(found, lenient.batches("train", **told), strict=True):
        check_same(element, batch)
    assert sum((element["weight"] == 0).sum() for element in found) == 1
    records = lenient.grain("train", batched=True, **told).records
    assert [len(step) for step in records] == [3, 3, 3]


def test_what_numpy_cannot_do_is_refused(dataset: Dataset) -> None:
    with pytest.raises(UsageError, match=r"\.tf and \.torch only"):
        dataset.grain("train", augment={"mixup": 0.2}, **OPTIONS)
    with pytest.raises(UsageError, match="rank 2 of 2"):
        dataset.grain("train", rank=2, num_ranks=2, **OPTIONS)
    with pytest.raises(UsageError, match="partial"):
        dataset.grain("test", epochs=2, **OPTIONS)
