"""Start TensorFlow quietly. Import this module before anything that imports TensorFlow."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@contextmanager
def quiet_start() -> Iterator[None]:
    """Suppress the messages of TensorFlow's libraries while they load, mostly that there is no GPU.

    They write before their own log settings apply, so the file descriptor itself is redirected. If the block
    fails, the messages are printed.
    """
    with tempfile.TemporaryFile() as held:
        screen = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            os.write(screen, held.read())
            raise
        finally:
            os.dup2(screen, 2)
            os.close(screen)


def start(*, logical_devices: int = 0, seed: int | None = None, deterministic: bool = False) -> None:
    """Import TensorFlow and set what must be set before its first operation.

    Args:
        logical_devices: split the CPU into so many devices; 0 leaves it whole.
        seed: of weights and dropout.
        deterministic: only operations whose result is the same each time.
    """
    with quiet_start():
        import keras
        import tensorflow as tf

        for gpu in tf.config.list_physical_devices("GPU"):
            # Otherwise the first process takes all of a GPU's memory.
            tf.config.experimental.set_memory_growth(gpu, True)
        if logical_devices:
            cpu = tf.config.list_physical_devices("CPU")[0]
            parts = [tf.config.LogicalDeviceConfiguration() for _ in range(logical_devices)]
            tf.config.set_logical_device_configuration(cpu, parts)
        if seed is not None:
            keras.utils.set_random_seed(seed % 2**32)
        if deterministic:
            tf.config.experimental.enable_op_determinism()
        tf.constant(0)  # the first operation starts the devices, which print too
