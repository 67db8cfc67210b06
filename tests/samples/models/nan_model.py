"""A linear model whose images become NaN once, on rank 1, for TensorFlow; see ``nan_torch_model``.

It happens in step ``NAN_AT`` of the process unless the file that ``SHARDMILL_TEST_NAN`` names is there.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from shardmill.training.models import ModelSpec
from tests.samples.models import linear_model
from tests.samples.models.slow_rank_model import own_rank
from tests.samples.once import happens_once

NAN_AT = 6
MARKER = "SHARDMILL_TEST_NAN"

_calls = count(1)


class SpoilsOnRankOne(keras.layers.Layer):  # type: ignore[misc]
    """Passes images on as float32, and on rank 1 spoils them once."""

    def call(self, images: Any) -> Any:
        images = tf.cast(images, tf.float32)
        if own_rank() != 1:
            return images
        return tf.ensure_shape(tf.numpy_function(_spoiled, [images], images.dtype), images.shape)


def _spoiled(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    spoils = next(_calls) == NAN_AT and happens_once(MARKER)
    return np.full_like(images, np.nan) if spoils else images


def build(spec: ModelSpec) -> Any:
    """The model."""
    image = keras.Input((spec.image_size, spec.image_size, 3), dtype="uint8")
    return keras.Model(image, linear_model.build(spec)(SpoilsOnRankOne()(image)))
