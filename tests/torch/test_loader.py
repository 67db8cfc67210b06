"""The loader: the order's batches with any number of workers and ranks, exact state, errors with names."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from shardmill import Dataset, open_dataset
from shardmill.infra.errors import ChildDied, ConfigError, CorruptDataError, NotFoundError, UsageError
from shardmill.training.config import AugmentSettings
from shardmill.training.order import StepPlan, TrainingOrder
from shardmill.training.reading import Batch
from shardmill.training.reading.batch_maker import BatchMaker
from shardmill.training.torch.data import RankOrder, StepBatches, TorchBatch, TorchLoader, options
from tests.samples.datasets.published import coloured, publish
from tests.samples.waiting import eventually

SIZE = 24
GLOBAL_BATCH = 10
STEPS = 6  # of 53 records, the last of 3 and padding


def loader_of(dataset: Dataset, **told: Any) -> TorchLoader:
    settings: dict[str, Any] = {
        "batch_size": GLOBAL_BATCH,
        "image_size": SIZE,
        "seed": 3,
        "last_batch": "pad",
        "num_workers": 0,
        **told,
    }
    return dataset.torch("train", **settings)


def order_of(dataset: Dataset) -> TrainingOrder:
    return TrainingOrder(dataset.table("train").label, seed=3, global_batch_size=GLOBAL_BATCH)


def expected(dataset: Dataset, epochs: int = 1) -> list[Any]:
    """The batches of the steps, without PyTorch."""
    order = order_of(dataset)
    maker = BatchMaker(dataset.reader("train"), image_size=SIZE, augment=AugmentSettings(), threads=1)
    return [maker.make(order.step(epoch, step)) for epoch in range(epochs) for step in range(STEPS)]


def two_epochs(loader: TorchLoader) -> Iterator[TorchBatch]:
    """The batches of two iterations."""
    return itertools.chain.from_iterable(itertools.repeat(loader, 2))


def assert_same(left: TorchBatch, right: TorchBatch) -> None:
    assert (left.epoch, left.step) == (right.epoch, right.step)
    for name in ("images", "labels", "weights", "sizes", "ordinals", "positions"):
        assert torch.equal(getattr(left, name), getattr(right, name)), name


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker")  # where there are fewer CPUs
@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
@pytest.mark.parametrize("persistent_workers", [False, True])
def test_batches_are_those_of_the_order(dataset: Dataset, num_workers: int, persistent_workers: bool) -> None:
    loader = loader_of(dataset, num_workers=num_workers, persistent_workers=persistent_workers, num_epochs=2)
    assert len(loader) == STEPS
    wanted = expected(dataset, epochs=2)
    seen = [list(loader) for _ in range(2)]
    assert [len(epoch) for epoch in seen] == [STEPS, STEPS]
    assert list(loader) == [], "two epochs were asked for"
    for batch, want in zip(itertools.chain(*seen), wanted, strict=True):
        assert (batch.epoch, batch.step) == (want.epoch, want.step)
        assert batch.images.shape == (GLOBAL_BATCH, 3, SIZE, SIZE)
        assert batch.images.is_contiguous(memory_format=torch.channels_last)
        assert np.array_equal(batch.images.permute(0, 2, 3, 1).numpy(), want.images)
        assert batch.labels.dtype == torch.int64
        assert batch.labels.tolist() == want.labels.tolist()
        assert batch.weights.tolist() == want.weights.tolist()
        assert batch.ordinals.tolist() == want.ordinals.tolist()
        assert batch.positions.tolist() == want.positions.tolist()
        assert batch.sizes.tolist() == [[SIZE, SIZE]] * GLOBAL_BATCH


def test_threads_make_the_next_batches_while_one_is_used(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: set[int] = set()
    make = BatchMaker.make

    def noted(maker: BatchMaker, plan: StepPlan) -> Batch:
        made.add(plan.step)
        return make(maker, plan)

    monkeypatch.setattr(BatchMaker, "make", noted)
    batches = iter(loader_of(dataset, num_epochs=1))
    assert next(batches).step == 0
    assert eventually(lambda: made == {0, 1, 2})


@pytest.mark.parametrize("shares", [None, (3, 1, 1)])
def test_ranks_divide_each_step(dataset: Dataset, shares: tuple[int, ...] | None) -> None:
    loaders = [loader_of(dataset, rank=rank, num_ranks=3, shares=shares, num_epochs=1) for rank in range(3)]
    rows = [3, 3, 4] if shares is None else [6, 2, 2]
    for parts, want in zip(zip(*loaders, strict=True), expected(dataset), strict=True):
        assert [part.images.shape[0] for part in parts] == rows
        assert torch.cat([part.ordinals for part in parts]).tolist() == want.ordinals.tolist()
        images = torch.cat([part.images for part in parts]).permute(0, 2, 3, 1)
        assert np.array_equal(images.numpy(), want.images)
        assert float(sum(part.weights.sum() for part in parts)) == pytest.approx(1)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_state_counts_what_was_given_out_and_not_what_is_ready(dataset: Dataset, num_workers: int) -> None:
    unbroken = list(two_epochs(loader_of(dataset, num_epochs=2)))
    assert len(unbroken) == 2 * STEPS
    for consumed in (0, 1, STEPS - 1, STEPS, STEPS + 2):
        first = loader_of(dataset, num_workers=num_workers, prefetch_factor=4, num_epochs=2)
        taken = list(itertools.islice(two_epochs(first), consumed))
        state = first.state_dict()
        first.close()
        assert (state["epoch"], state["step"]) == divmod(consumed, STEPS)
        second = loader_of(dataset, num_workers=1, num_epochs=2)
        second.load_state_dict(state)
        for batch, want in zip(taken + list(two_epochs(second)), unbroken, strict=True):
            assert_same(batch, want)


@pytest.mark.parametrize("persistent_workers", [False, True])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_each_iteration_is_the_next_epoch(
    dataset: Dataset, num_workers: int, persistent_workers: bool
) -> None:
    told = {"num_workers": num_workers, "persistent_workers": persistent_workers}
    loader = loader_of(dataset, first_epoch=3, **told)
    passes = [list(loader) for _ in range(3)]
    assert [[batch.epoch for batch in one] for one in passes] == [[3] * STEPS, [4] * STEPS, [5] * STEPS]
    orders = [torch.cat([batch.ordinals[batch.weights > 0] for batch in one]).tolist() for one in passes]
    assert all(sorted(order) == list(range(53)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    pinned = loader_of(dataset, epoch=4, **told)
    for _ in range(2):
        for batch, want in zip(pinned, passes[1], strict=True):
            assert_same(batch, want)
        assert (pinned.epoch, pinned.step) == (4, 0)


def test_it_introduces_itself(dataset: Dataset) -> None:
    loader = loader_of(dataset, image_size=16)
    images, labels, *_ = batch = next(iter(loader))
    assert repr(loader) == "<6 batches of 10: set@1 train, epoch 0, step 1; 0 workers>"
    wanted = "<batch of epoch 0, step 0: images uint8 [10, 3, 16, 16], labels int64 [10]>"
    assert repr(batch) == wanted
    assert (len(images), len(labels)) == (10, 10)


def test_a_look_at_the_first_batch_takes_nothing_from_the_next_iteration(dataset: Dataset) -> None:
    loader = dataset.torch("test", batch_size=3, image_size=SIZE, num_workers=0)
    next(iter(loader))
    assert [batch.step for batch in loader] == [0, 1, 2]
    both = loader_of(dataset)
    assert [(one.epoch, two.epoch) for one, two in zip(both, both, strict=True)] == [(0, 1)] * STEPS


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_state_goes_on_in_the_middle_of_an_epoch(dataset: Dataset, num_workers: int) -> None:
    loader = loader_of(dataset, num_workers=num_workers)
    first = next(iter(loader))
    loader.load_state_dict(loader.state_dict())
    rest = list(loader)
    assert [first.step, *(batch.step for batch in rest)] == list(range(STEPS))
    loader.seek(4, 5)
    assert [(batch.epoch, batch.step) for batch in loader] == [(4, 5)]
    assert [batch.epoch for batch in loader] == [5] * STEPS
    loader.close()
    with pytest.raises(UsageError, match="6 steps"):
        loader.seek(0, STEPS)


@pytest.mark.parametrize(
    ("told", "key"),
    [({"seed": 4}, "seed"), ({"balance": "uniform"}, "balance"), ({"batch_size": 5}, "global_batch_size")],
)
def test_a_state_of_another_order_is_refused(dataset: Dataset, told: dict[str, Any], key: str) -> None:
    state = loader_of(dataset).state_dict()
    with pytest.raises(ConfigError, match=key):
        loader_of(dataset, **told).load_state_dict(state)


def test_preloaded_records_give_the_same(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = list(loader_of(dataset, num_epochs=1))
    preloaded = loader_of(dataset, num_epochs=1, preload=True, num_workers=2)
    monkeypatch.setattr(os, "pread", None)  # nothing is read any more, in no worker either
    for left, right in zip(preloaded, lazy, strict=True):
        assert_same(left, right)


@pytest.mark.parametrize("image_size", [SIZE, None])
def test_spawned_workers_give_the_same(dataset: Dataset, image_size: int | None) -> None:
    told: dict[str, Any] = {"image_size": image_size, "num_epochs": 1}
    spawned = loader_of(dataset, num_workers=2, multiprocessing_context="spawn", **told)
    for left, right in zip(spawned, loader_of(dataset, **told), strict=True):
        assert_same(left, right)


def test_preload_says_what_does_not_fit(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardmill.training.reading.cache.preload.free_memory_bytes", lambda: 1000)
    with pytest.raises(UsageError, match=r"'train' take .* GiB"):
        loader_of(dataset, preload=True)


def test_the_iterable_alone_is_for_any_data_loader(dataset: Dataset) -> None:
    maker = BatchMaker(dataset.reader("train"), image_size=SIZE, augment=AugmentSettings())
    batches = StepBatches(maker, RankOrder(order_of(dataset)), start=2, stop=9)
    spawned = DataLoader(batches, batch_size=None, num_workers=2, multiprocessing_context="spawn")
    wanted = expected(dataset, epochs=2)[2:9]
    for batch, want in zip(spawned, wanted, strict=True):
        assert (batch.epoch, batch.step) == (want.epoch, want.step)
        assert np.array_equal(batch.images.permute(0, 2, 3, 1).numpy(), want.images)


def test_workers_outlive_opencv_and_threads_of_their_parent(dataset: Dataset) -> None:
    """A fork takes along none of the threads that OpenCV and the maker have; nobody may wait for them."""
    cv2.setNumThreads(2)
    cv2.GaussianBlur(np.zeros((2000, 2000, 3), np.uint8), (9, 9), 0)
    maker = BatchMaker(dataset.reader("train"), image_size=SIZE, augment=AugmentSettings(), threads=2)
    order = RankOrder(order_of(dataset))
    maker.make(order.plan(0))
    steps = [batch.step for batch in TorchLoader(maker, order, num_workers=2, num_epochs=1)]
    assert steps == list(range(STEPS))


def test_a_loader_of_ones_own_refuses_an_unknown_option(dataset: Dataset) -> None:
    maker = BatchMaker(dataset.reader("train"), image_size=SIZE)
    with pytest.raises(UsageError, match="unknown argument 'worker'") as caught:
        TorchLoader(maker, RankOrder(order_of(dataset)), worker=2)
    assert caught.value.remedy == "did you mean 'num_workers'?"


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("image_size", [SIZE, None])
def test_damage_comes_out_of_a_worker_with_its_names(
    tmp_path: Path, num_workers: int, image_size: int | None
) -> None:
    version = publish(tmp_path, coloured({"train": {"a": 17, "b": 9}}), name="set")
    path = version.storage.local_path(version.shards("train")[1].path)
    assert path is not None
    data = path.read_bytes()
    loader = loader_of(open_dataset("set", root=tmp_path), num_workers=num_workers, image_size=image_size)
    path.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    with pytest.raises(CorruptDataError, match=r"^record [0-9a-f]{16} at byte \d+ of .*train-00001-of-00002"):
        list(loader)
    path.write_bytes(data)
    failed = loader.step
    loader.seek(loader.epoch, failed)
    assert [batch.step for batch in loader] == list(range(failed, 3)), "it goes on where it failed"


def test_a_worker_that_is_killed_is_an_error_and_no_hang(dataset: Dataset) -> None:
    others = set(torch.multiprocessing.active_children())
    loader = loader_of(dataset, num_workers=1, prefetch_factor=1)
    batches = iter(loader)
    next(batches)
    (worker,) = set(torch.multiprocessing.active_children()) - others
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(ChildDied, match="worker") as caught:
        list(batches)
    assert "/dev/shm" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"rank": 2, "num_ranks": 2}, "rank"),
        ({"rank": 0, "num_ranks": 11}, "11 ranks cannot share batches of 10"),
        ({"rank": 0, "num_ranks": 2, "shares": (1,)}, "1 shares for 2 ranks"),
        ({"num_workers": -1}, "num_workers = -1"),
        ({"prefetch_factor": 0}, "prefetch_factor = 0"),
        ({"epoch": 1, "num_epochs": 2}, "num_epochs = 2"),
        ({"epoch": 1, "first_epoch": 1}, "first_epoch = 1"),
        ({"first_epoch": -1}, "first_epoch = -1 must be at least 0"),
        ({"workers": 2}, "unknown argument 'workers'"),
        ({"balance": "even"}, "'natural', 'uniform'"),
        ({"batch_size": 0}, "at least 1"),
    ],
)
def test_wrong_requests_say_so(dataset: Dataset, told: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        loader_of(dataset, **told)


def test_an_unknown_split_says_what_there_is(dataset: Dataset) -> None:
    with pytest.raises(NotFoundError, match="train, test"):
        dataset.torch("validation")


def test_evaluation_is_in_stored_order(dataset: Dataset) -> None:
    batches = list(dataset.torch("test", batch_size=3, image_size=SIZE, num_workers=0, num_epochs=1))
    assert torch.cat([batch.ordinals for batch in batches])[:8].tolist() == list(range(8))
    assert [batch.weights.tolist() for batch in batches] == [[1, 1, 1], [1, 1, 1], [1, 1, 0]]


@pytest.mark.parametrize(("cpus", "ranks", "workers"), [(2, 1, 2), (8, 4, 2), (2, 4, 1), (64, 1, 16)])
def test_workers_divide_the_cpus_among_the_ranks(
    monkeypatch: pytest.MonkeyPatch, cpus: int, ranks: int, workers: int
) -> None:
    monkeypatch.setattr(options, "num_cpus", lambda: cpus)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    assert options.auto_workers() == workers
