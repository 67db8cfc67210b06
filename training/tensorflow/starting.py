"""Start TensorFlow quietly, with what must be set before its first operation."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from shardmill.training.frameworks import quiet
from shardmill.training.ranks.devices import DeviceRequest

_MIB = 1 << 20


def start(
    *,
    devices: str = "all",
    seed: int | None = None,
    deterministic: bool = False,
    in_cluster: bool = False,
    gpu_memory_limit_bytes: int | None = None,
) -> None:
    """Set what must be set before the first operation of TensorFlow.

    Args:
        devices: ``run.devices``; ``cpu:N`` splits the CPU into N devices and hides the GPUs.
        seed: seed of weights and dropout.
        deterministic: only operations whose result is the same each time.
        in_cluster: this process is one of several ranks: its strategy must come before the first operation.
        gpu_memory_limit_bytes: most memory of each GPU; None: as much as is needed.
    """
    request = DeviceRequest.parse(devices)
    with quiet():
        for gpu in tf.config.list_physical_devices("GPU"):
            _bound_memory(gpu, gpu_memory_limit_bytes)
        if request.on_cpu:
            tf.config.set_visible_devices([], "GPU")
        if request.on_cpu and not in_cluster:
            cpu = tf.config.list_physical_devices("CPU")[0]
            parts = [tf.config.LogicalDeviceConfiguration() for _ in range(request.least)]
            tf.config.set_logical_device_configuration(cpu, parts)
        if seed is not None:
            keras.utils.set_random_seed(seed % 2**32)
        if deterministic:
            tf.config.experimental.enable_op_determinism()
        if not in_cluster:
            tf.constant(0)  # the first operation starts the devices, which print too


def _bound_memory(gpu: Any, limit_bytes: int | None) -> None:
    """Let TensorFlow take memory of a GPU as it needs it, or a fixed part of it."""
    if limit_bytes is None:
        # Otherwise the first process takes all of a GPU's memory.
        tf.config.experimental.set_memory_growth(gpu, True)
        return
    part = tf.config.LogicalDeviceConfiguration(memory_limit=limit_bytes // _MIB)
    tf.config.set_logical_device_configuration(gpu, [part])
