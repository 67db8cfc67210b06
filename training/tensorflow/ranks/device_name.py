"""Name the device of this process, so that ranks can tell whether theirs are alike. Imports TensorFlow."""

from __future__ import annotations

import os
import socket

import tensorflow as tf

from shardmill.infra.processes.process import num_cpus


def kind_of_device() -> str:
    """Return the model of this process's GPU, with their number if there are several, or its processors."""
    gpus = tf.config.get_visible_devices("GPU")
    if not gpus:
        threads = os.environ.get("TF_NUM_INTRAOP_THREADS", "")
        return f"CPU, {threads or num_cpus()} threads"
    details = tf.config.experimental.get_device_details(gpus[0])
    name = str(details.get("device_name", "GPU"))
    return name if len(gpus) == 1 else f"{len(gpus)} x {name}"


def place_of_device() -> str:
    """Return the host, and the GPUs of it that this process may use."""
    return f"{socket.gethostname()} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}".strip()
