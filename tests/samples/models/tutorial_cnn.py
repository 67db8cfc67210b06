"""The model of a tutorial on digits, 28 × 28 × 1, as a user brings it."""

from __future__ import annotations

from typing import Any

from shardmill.training.models import ModelSpec

DEFAULT_IMAGE_SIZE = 28


def build(spec: ModelSpec) -> Any:
    """Convolve, pool, classify."""
    import keras

    image = keras.Input((28, 28, 1))
    x = keras.layers.Conv2D(8, 3, strides=2, activation="relu")(keras.layers.Rescaling(1 / 255)(image))
    x = keras.layers.Flatten()(keras.layers.MaxPooling2D(2)(x))
    return keras.Model(image, keras.layers.Dense(spec.num_classes)(x))
