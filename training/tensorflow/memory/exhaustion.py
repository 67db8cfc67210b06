"""Recognise that TensorFlow found no memory for a step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from shardmill.training.run.memory.fallback import does_not_fit


@contextlib.contextmanager
def out_of_memory() -> Iterator[None]:
    """Raise OutOfMemory if the block finds no memory on a device."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise does_not_fit(str(error.message)) from error
