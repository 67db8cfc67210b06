"""A linear model whose rank 1 hangs once, in foreign code in the middle of a step, while rank 0 waits for it.

It hangs in step ``HANG_AT`` of the process unless the file that ``SHARDMILL_TEST_HANG`` names is there.
"""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from shardmill.training.models import ModelSpec
from tests.samples.models import linear_model
from tests.samples.models.slow_rank_model import own_rank
from tests.samples.once import happens_once

HANG_AT = 6
MARKER = "SHARDMILL_TEST_HANG"

_calls = count(1)


class HangsOnRankOne(keras.layers.Layer):  # type: ignore[misc]
    """Passes images on, and on rank 1 hangs once."""

    def call(self, images: Any) -> Any:
        if own_rank() != 1:
            return images
        return tf.ensure_shape(tf.numpy_function(_passed_on, [images], images.dtype), images.shape)


def _passed_on(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if next(_calls) == HANG_AT and happens_once(MARKER):
        time.sleep(3600)
    return images


def build(spec: ModelSpec) -> Any:
    """The model."""
    image = keras.Input((spec.image_size, spec.image_size, 3), dtype="uint8")
    return keras.Model(image, linear_model.build(spec)(HangsOnRankOne()(image)))
