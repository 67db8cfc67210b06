"""A model of one's own, as a user writes it: the colour of an image decides."""

from __future__ import annotations

from typing import Any

from shardmill.training.models import ModelSpec

DEFAULT_IMAGE_SIZE = 8


def build(spec: ModelSpec) -> Any:
    """A linear classifier of the mean colour."""
    import keras

    image = keras.Input((spec.image_size, spec.image_size, 3))
    colour = keras.layers.GlobalAveragePooling2D()(keras.layers.Rescaling(1 / 255)(image))
    return keras.Model(image, keras.layers.Dense(spec.num_classes)(colour))
