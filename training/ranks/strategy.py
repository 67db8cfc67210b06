"""Choose the devices of a run: one, or all visible ones with ``MirroredStrategy``."""

from __future__ import annotations

from typing import Any, Literal

import tensorflow as tf

from infra.errors import ConfigError


def make_strategy(devices: Literal["auto", "one"]) -> Any:
    """Make a strategy over every visible GPU, or over the (logical) CPU devices if there is none."""
    gpus = tf.config.list_logical_devices("GPU")
    found = [device.name for device in gpus or tf.config.list_logical_devices("CPU")]
    if devices == "one" or len(found) == 1:
        return tf.distribute.OneDeviceStrategy(found[0])
    # NCCL needs NVIDIA GPUs; logical CPU devices reduce by copying to one device.
    operations = None if gpus else tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(found, cross_device_ops=operations)


def check_divisible(global_batch_size: int, num_replicas: int) -> None:
    """Check that every replica takes the same number of rows.

    Raises:
        ConfigError: the global batch cannot be divided so.
    """
    rest = global_batch_size % num_replicas
    if rest:
        lower, upper = global_batch_size - rest, global_batch_size - rest + num_replicas
        near = f"{lower} or {upper}" if lower else str(upper)
        raise ConfigError(
            f"data.global_batch_size = {global_batch_size} cannot be divided among {num_replicas} devices",
            f"set it to {near}, or run.devices to 'one'",
        )


def distribute(strategy: Any, pipeline: Any, start: int, stop: int) -> Any:
    """Distribute the steps ``start`` to ``stop`` over the replicas, in the slices of the order.

    The batches of a step come one after the other and go to the replicas in turn, so that replica r has rows
    [rB/R, (r+1)B/R) of the global batch.
    """
    per_replica = pipeline.order.global_batch_size // strategy.num_replicas_in_sync
    return strategy.distribute_datasets_from_function(lambda _: pipeline.dataset(start, stop, per_replica))


def gather(strategy: Any, value: Any) -> Any:
    """Return the rows of all replicas one after the other, as a numpy array."""
    return tf.concat(strategy.experimental_local_results(value), axis=0).numpy()
