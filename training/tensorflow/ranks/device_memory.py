"""Measure the memory of this process, and of its GPUs as TensorFlow counts it. Imports TensorFlow."""

from __future__ import annotations

import psutil
import tensorflow as tf


def peak_device_bytes() -> dict[str, int]:
    """Return the most memory that TensorFlow has used of each GPU so far (bytes): {"GPU:0": ...}.

    Empty without a GPU: TensorFlow does not count the memory of CPUs.
    """
    # Of several ranks, names begin with the job and the number of the rank.
    own = [device.name.rpartition("device:")[2] for device in tf.config.list_logical_devices("GPU")]
    names = sorted(set(own))
    return {name: int(tf.config.experimental.get_memory_info(name)["peak"]) for name in names}


def memory_figures() -> dict[str, int]:
    """Return the memory of this process now, and the peak of each of its GPUs so far, by name (bytes)."""
    figures = {"memory_process_bytes": int(psutil.Process().memory_info().rss)}
    for name, peak in peak_device_bytes().items():
        figures[f"memory_{name.replace(':', '_').lower()}_peak_bytes"] = peak
    return figures
