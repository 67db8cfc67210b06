"""``small_cnn`` on ranks of different speed: rank 1 takes 10 ms longer for each example."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from shardmill.training.models import ModelSpec
from shardmill.training.tensorflow.models import build_model

SECONDS_AN_EXAMPLE = 0.01


def own_rank() -> int:
    """The number of this process among the ranks; 0 if it trains alone."""
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    return int(config.get("task", {}).get("index", 0))


class SlowOnRankOne(keras.layers.Layer):  # type: ignore[misc]
    """Passes images on, on rank 1 after a while."""

    def call(self, images: Any) -> Any:
        if own_rank() != 1:
            return images
        late = tf.numpy_function(_late, [images], images.dtype)
        return tf.ensure_shape(late, images.shape)


def _late(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    time.sleep(SECONDS_AN_EXAMPLE * len(images))
    return images


def build(spec: ModelSpec) -> Any:
    """The model."""
    image = keras.Input((spec.image_size, spec.image_size, spec.image_channels), dtype="uint8")
    return keras.Model(image, build_model(replace(spec, name="small_cnn"))(SlowOnRankOne()(image)))
