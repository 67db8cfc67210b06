"""Choose the strategy of a process, and feed its replicas with their rows of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shardmill.infra.errors import ConfigError
from shardmill.infra.readable import counted
from shardmill.training.ranks.cluster import Cluster
from shardmill.training.ranks.devices import DeviceRequest
from shardmill.training.tensorflow.ranks.coordination import let_idle_threads_sleep, set_patience
from shardmill.training.tensorflow.ranks.group import group_of


@dataclass(frozen=True, slots=True)
class Communication:
    """Communication between ranks.

    Attributes:
        collectives: how they sum gradients.
        silence_seconds: time without a sign of life after which a rank counts as lost.
        start_seconds: time for all ranks to find the first.
    """

    collectives: Literal["auto", "ring", "nccl"] = "auto"
    silence_seconds: float = 60.0
    start_seconds: float = 600.0


def make_rank_strategy(cluster: Cluster, communication: Communication) -> Any:
    """Make the strategy of one of several ranks, whose ``TF_CONFIG`` is set. It waits for the others.

    No TensorFlow operation may have run before in this process.
    """
    set_patience(cluster.num_ranks, communication.silence_seconds, communication.start_seconds)
    if cluster.is_on_one_machine:
        let_idle_threads_sleep()
    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=kinds[communication.collectives.upper()]
    )
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def make_strategy(devices: str) -> Any:
    """Make the strategy of a process that trains alone.

    Args:
        devices: ``run.devices``. ``starting.start`` has split the CPU already.

    Raises:
        ConfigError: there are fewer devices.
    """
    request = DeviceRequest.parse(devices)
    gpus = [] if request.on_cpu else tf.config.list_logical_devices("GPU")
    found = [device.name for device in gpus or tf.config.list_logical_devices("CPU")]
    if len(found) < request.least:
        raise ConfigError(
            f"run.devices = {devices!r}, but this process sees {counted(len(found), 'device')}",
            "set it to all; cpu:N splits the CPU into N devices",
        )
    chosen = found[: request.most]
    if len(chosen) == 1:
        return tf.distribute.OneDeviceStrategy(chosen[0])
    # NCCL needs NVIDIA GPUs; logical CPU devices reduce by copying to one device.
    operations = None if gpus else tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(chosen, cross_device_ops=operations)


def num_local_replicas(strategy: Any) -> int:
    """Return the number of replicas in this process."""
    return int(strategy.num_replicas_in_sync // group_of(strategy).num_ranks)


def distribute(strategy: Any, pipeline: Any, start: int, stop: int) -> Any:
    """Distribute the steps ``start`` to ``stop`` over the replicas of this process.

    The pipeline gives the rows of this rank. The batches of a step come one after the other and go to the
    replicas in turn, so that the rows of all replicas of all ranks make up the global batch, in its order.
    """
    own = pipeline.rows.stop - pipeline.rows.start
    per_replica = own // num_local_replicas(strategy)
    pipeline.prepare(start, stop)
    dataset = strategy.distribute_datasets_from_function(
        lambda _: without_tuning(pipeline, pipeline.dataset(start, stop, per_replica))
    )
    on_batch = group_of(strategy).on_batch
    return dataset if on_batch is None else _Watched(dataset, on_batch)


def without_tuning(pipeline: Any, dataset: Any) -> Any:
    """Turn off the thread of TensorFlow that tunes a dataset, unless the dataset needs it.

    The end of an iterator waits for that thread. TensorFlow wakes it before it says why, and a thread that is
    quick goes to sleep again, for up to a minute (``CancellationManager::StartCancel`` and
    ``Model::OptimizeLoop`` of TensorFlow 2.21).
    """
    if pipeline.is_tuned:
        return dataset
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


class _Watched:
    """A dataset that calls a function for each batch that it gives."""

    def __init__(self, dataset: Any, on_batch: Callable[[], None]) -> None:
        self._dataset = dataset
        self._on_batch = on_batch

    def __iter__(self) -> Iterator[Any]:
        for batch in self._dataset:
            self._on_batch()
            yield batch


def gather(strategy: Any, value: Any, own: slice, num_rows: int) -> npt.NDArray[Any]:
    """Return the rows of all replicas of all ranks one after the other. Every rank must call it.

    Args:
        strategy: the strategy.
        value: a value of each replica, of its rows of a batch.
        own: the place of this process's rows in the global batch.
        num_rows: the size of the global batch.
    """
    rows = np.concatenate([np.asarray(part) for part in strategy.experimental_local_results(value)])
    return group_of(strategy).gather_rows(rows, own, num_rows)
