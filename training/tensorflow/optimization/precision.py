"""The number type in which a model computes; its weights are float32 in any case."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import keras

MixedPrecision = Literal["off", "bfloat16", "float16"]


@contextmanager
def precision(mixed: MixedPrecision) -> Iterator[None]:
    """Build the layers that are made in this block for a precision.

    Layers keep the policy with which they were made. The global policy, which Keras' models read while they
    are built, is put back afterwards: what is built later, such as an export, does not depend on it.
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32" if mixed == "off" else f"mixed_{mixed}")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
