"""The number type in which a model computes; its weights are float32 in any case."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import keras

from shardmill.infra.errors import ConfigError

MixedPrecision = Literal["off", "bfloat16", "float16"]
_WITHOUT_AVX_512 = ("SSE41", "AVX", "AVX2", "AVX2_VNNI")


@contextmanager
def precision(mixed: MixedPrecision) -> Iterator[None]:
    """Build the layers that are made in this block for a precision.

    Layers keep the policy with which they were made. The global policy, which Keras' models read while they
    are built, is put back afterwards: what is built later, such as an export, does not depend on it.

    Raises:
        ConfigError: this processor may not compute in it.
    """
    if mixed != "off":
        _check_instructions(mixed)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32" if mixed == "off" else f"mixed_{mixed}")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _check_instructions(mixed: MixedPrecision) -> None:
    """Refuse half precision where oneDNN would end the process by an exception that nothing catches.

    TensorFlow hands half precision to oneDNN if the processor has AVX-512, and computes itself if not. It
    does not know that the environment may forbid oneDNN these instructions.
    """
    import tensorflow as tf

    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        limit = os.environ.get(name, "")
        if limit.upper() in _WITHOUT_AVX_512 and not tf.config.list_logical_devices("GPU"):
            raise ConfigError(
                f"run.mixed_precision = {mixed!r} needs AVX-512 instructions, which {name} = {limit} forbids",
                f"unset {name}, or set run.mixed_precision to off",
            )
