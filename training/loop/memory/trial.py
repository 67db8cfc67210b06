"""Try batch sizes with real training steps, each twice the one before. Imports TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import tensorflow as tf

from infra.dataset.version import DatasetVersion
from infra.processes.process import own_peak_rss_bytes
from training.config import TrainConfig, image_size_of
from training.dataset import Dataset
from training.loop.parts import TrainingParts, build_parts
from training.loop.step import TrainStep
from training.ranks.hardware.device_memory import peak_device_bytes
from training.ranks.strategy import distribute, make_strategy
from training.reading import RecordReader
from training.runs.folds import divide_train_split
from training.tf_data.training_input import InputSettings, open_training_input

# More examples a step make a run worse and hardly faster.
_MOST = 4096
_LEAST_STEPS_PER_EPOCH = 10
_SHARE_OF_RAM = 0.8
_STEPS = 2
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Trial:
    """A batch size with which training steps were taken.

    Attributes:
        global_batch_size: examples a step.
        peak_bytes: the most memory so far: of a GPU, or of this process if it trains on the CPU.
    """

    global_batch_size: int
    peak_bytes: int


def fitting_sizes(config: TrainConfig, version: DatasetVersion, ram_bytes: int) -> Iterator[Trial]:
    """Yield the batch sizes that fit, from small to large. TensorFlow has been started.

    On GPUs the last one is that before a step did not fit. On CPUs, where a process that takes too much is
    killed, it is the last one whose double is not expected to exceed ``ram_bytes``: each doubling adds twice
    what the one before it added.

    Raises:
        ConfigError: the model cannot be built.
    """
    strategy = make_strategy(config.run.devices)
    train = Dataset(version, config.reading).reader("train")
    sizes = _sizes(config, strategy.num_replicas_in_sync, len(train.table))
    parts = build_parts(_sized(config, sizes[0]), strategy, version, 1)
    last: Trial | None = None
    for size in sizes:
        try:
            _take_steps(_sized(config, size), version, parts, train)
        except tf.errors.ResourceExhaustedError:
            return
        trial = Trial(size, max(peak_device_bytes().values(), default=0) or own_peak_rss_bytes())
        on_cpu = not peak_device_bytes()
        if on_cpu and trial.peak_bytes > ram_bytes:
            return
        yield trial
        added = trial.peak_bytes - (trial if last is None else last).peak_bytes
        if on_cpu and trial.peak_bytes + 2 * added > ram_bytes:
            return
        last = trial


def available_ram_bytes() -> int:
    """Return the part of this machine's free memory, or of this container's, that a run may take."""
    free = psutil.virtual_memory().available
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:  # no container
        limit, used = "max", "0"
    if limit != "max":
        free = min(free, int(limit) - int(used))
    return int(_SHARE_OF_RAM * free)


def _sizes(config: TrainConfig, num_replicas: int, num_records: int) -> list[int]:
    """Return sizes that all replicas share and all parts of a step divide, each twice the one before."""
    sizes = [num_replicas * config.run.accumulate_steps * (2 if config.augment.mixes else 1)]
    while 2 * sizes[-1] <= min(_MOST, num_records // _LEAST_STEPS_PER_EPOCH):
        sizes.append(2 * sizes[-1])
    return sizes


def _sized(config: TrainConfig, size: int) -> TrainConfig:
    """Return the configuration with a batch size, and without a cache, which would be filled for nothing."""
    data = config.data.model_copy(update={"global_batch_size": size})
    reading = config.reading.model_copy(update={"cache": "none"})
    return config.model_copy(update={"data": data, "reading": reading})


def _take_steps(
    config: TrainConfig, version: DatasetVersion, parts: TrainingParts, train: RecordReader
) -> None:
    """Take some steps of a run.

    Raises:
        ResourceExhaustedError: they do not fit into memory.
    """
    order = divide_train_split(config.data, train, version.manifest.classes).order
    settings = InputSettings(config.data, config.reading, config.augment)
    pipeline = open_training_input(settings, train, order, image_size_of(config)).pipeline
    step = TrainStep(config, parts, config.data.batch_size // parts.strategy.num_replicas_in_sync)
    batches: Any = iter(distribute(parts.strategy, pipeline, 0, _STEPS))
    for _ in range(_STEPS):
        step(next(batches), config.data.batch_size)
    parts.totals.take()  # waits for the device
