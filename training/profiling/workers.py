"""Measure a PyTorch loader with several numbers of workers, and propose one (extra ``torch``)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.config import TrainConfig
from shardmill.training.dataset import Dataset
from shardmill.training.reading.example_spec import IMAGE_SIZE, SETTINGS

if TYPE_CHECKING:
    from shardmill.training.torch.data import TorchLoader

# Fewer workers are proposed if they reach this share of the highest rate.
_ENOUGH = 0.95
# Each candidate is measured so many times, and the least disturbed time counts.
_TURNS = 2


@dataclass(frozen=True, slots=True)
class WorkerRate:
    """The speed of a loader with a number of workers.

    Attributes:
        num_workers: processes that prepare batches; 0: threads of this process.
        images_per_second: when all workers are at work.
        first_batch_seconds: from the start of the workers to the first batch.
    """

    num_workers: int
    images_per_second: float
    first_batch_seconds: float


@dataclass(frozen=True, slots=True)
class Proposal:
    """The number of workers to use, and the reason."""

    num_workers: int
    reason: str


def candidates(most: int) -> list[int]:
    """Return the numbers of workers to measure: 0, the powers of two below ``most``, and ``most``."""
    powers = [1 << exponent for exponent in range(most.bit_length()) if 1 << exponent < most]
    return [0, *powers, most]


def propose(rates: Sequence[WorkerRate]) -> Proposal:
    """Propose the smallest number of workers that is nearly as fast as the fastest.

    Without workers no batch is made while the model computes, so 0 is never proposed.
    """
    working = [rate for rate in rates if rate.num_workers]
    fastest = max(working, key=lambda rate: rate.images_per_second)
    chosen = next(rate for rate in working if rate.images_per_second >= _ENOUGH * fastest.images_per_second)
    reason = f"{chosen.images_per_second:,.0f} images/s"
    if chosen is fastest:
        return Proposal(chosen.num_workers, f"{reason}, the fastest")
    return Proposal(
        chosen.num_workers,
        f"{reason}, nearly as fast as {fastest.num_workers} workers ({fastest.images_per_second:,.0f})",
    )


def measure_workers(
    version: DatasetVersion,
    config: TrainConfig,
    seconds: float,
    on_stage: Callable[[str], None] = lambda name: None,
) -> list[WorkerRate]:
    """Measure the loader of the train split with each candidate, up to one worker for each CPU.

    Args:
        version: the dataset version.
        config: the configuration of the training run; images are 224 pixels unless it says another size.
        seconds: to spend on each candidate, in turns.
        on_stage: is called with the name of each measurement before it is made.

    Raises:
        EnvironmentFault: PyTorch is not installed.
        ConfigError: the windows of an order by block do not fit into ``reading.ram_budget_bytes``.
    """
    with contextlib.closing(_loader(version, config, "auto")) as loader:
        most = loader.num_workers
        on_stage("first read")
        _measured(loader, seconds)  # brings the files into the operating system's cache
    found: dict[int, list[WorkerRate]] = {number: [] for number in candidates(most)}
    for turn in range(_TURNS):
        for number, rates in found.items():
            on_stage(f"num_workers = {number}, turn {turn + 1} of {_TURNS}")
            with contextlib.closing(_loader(version, config, number)) as loader:
                rates.append(_measured(loader, seconds / _TURNS))
    return [max(rates, key=lambda rate: rate.images_per_second) for rates in found.values()]


def image_size(config: TrainConfig) -> int:
    """Return height and width of the images to measure (pixels). The model's file may need TensorFlow."""
    return config.data.image_size or IMAGE_SIZE


def _loader(version: DatasetVersion, config: TrainConfig, num_workers: int | Literal["auto"]) -> TorchLoader:
    data = config.data
    options: dict[str, Any] = {
        "batch_size": data.global_batch_size,
        "image_size": image_size(config),
        "last_batch": data.last_batch,
        "augment": config.augment.without_batched(),  # those are done on the device
        **{name: getattr(data, name) for name in SETTINGS if name in data.model_fields_set},
    }
    # A dataset of its own, so that no candidate finds the cache in memory of another.
    return Dataset(version, config.reading).torch("train", num_workers=num_workers, **options)


def _measured(loader: TorchLoader, seconds: float) -> WorkerRate:
    batches, begin = _endless(loader), time.perf_counter()
    next(batches)
    first = time.perf_counter() - begin
    for _ in range(loader.num_workers):  # until each worker has made a batch
        next(batches)
    begin, images = time.perf_counter(), 0
    while not images or time.perf_counter() - begin < seconds:
        images += len(next(batches).labels)
    rate = images / (time.perf_counter() - begin)
    return WorkerRate(loader.num_workers, rate, first)


def _endless(loader: TorchLoader) -> Iterator[Any]:
    while True:
        yield from loader
