"""A linear model whose batch normalisation finds an infinite variance; its loss and gradient are finite."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from shardmill.training.models import ModelSpec


class Far(keras.layers.Layer):  # type: ignore[misc]
    """Returns its input times 1e25, without a gradient: the square of a deviation is above float32."""

    def call(self, inputs: Any) -> Any:
        """Multiply."""
        return tf.stop_gradient(inputs * 1e25)


def build(spec: ModelSpec) -> Any:
    """The model."""
    image = keras.Input((spec.image_size, spec.image_size, 3))
    colour = keras.layers.GlobalAveragePooling2D()(image)
    same = keras.layers.BatchNormalization()(Far()(colour))
    return keras.Model(image, keras.layers.Dense(spec.num_classes)(keras.layers.Add()([colour, same])))
