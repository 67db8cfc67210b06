"""A model of one's own with batch normalisation, whose moments all ranks must add up in each step."""

from __future__ import annotations

from typing import Any

from shardmill.training.models import ModelSpec
from shardmill.training.tensorflow.models import normalized
from shardmill.training.tensorflow.models.normalization import BatchNormalization

DEFAULT_IMAGE_SIZE = 8


def build(spec: ModelSpec) -> Any:
    """Two convolutions with batch normalisation, and a linear classifier; nothing is drawn."""
    import keras

    image = keras.Input(spec.image_shape)
    x = normalized(image, spec)
    for channels in (4, 8):
        x = keras.layers.Conv2D(channels, 3, use_bias=False)(x)
        x = keras.layers.ReLU()(BatchNormalization(synchronized=spec.synchronized)(x))
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, keras.layers.Dense(spec.num_classes)(x))
