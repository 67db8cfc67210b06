"""A model of one's own whose steps need far more memory with each further example.

Four examples train with 16 KiB. Eight ask for a petabyte, which no allocator gives.
"""

from __future__ import annotations

from typing import Any

from shardmill.training.models import ModelSpec

DEFAULT_IMAGE_SIZE = 8


def build(spec: ModelSpec) -> Any:
    """A linear classifier of the mean colour, behind a layer that wastes memory in training."""
    import keras
    import tensorflow as tf

    class Hungry(keras.layers.Layer):  # type: ignore[misc]
        """Returns its input, with 4 * 2^(3 b² / 4) bytes taken and given back where b examples train."""

        def call(self, inputs: Any, training: bool = False) -> Any:
            if not training:
                return inputs
            examples = tf.cast(tf.shape(inputs)[0], tf.float64)
            size = tf.cast(2.0 ** (0.75 * examples**2), tf.int64)
            return inputs + tf.cast(tf.reduce_max(tf.random.uniform([size])) * 0, inputs.dtype)

    image = keras.Input((spec.image_size, spec.image_size, 3))
    colour = keras.layers.GlobalAveragePooling2D()(keras.layers.Rescaling(1 / 255)(image))
    return keras.Model(image, keras.layers.Dense(spec.num_classes)(Hungry()(colour)))
