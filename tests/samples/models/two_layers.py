"""A model of one's own with a backbone: a convolution with batch normalisation, and a classifier."""

from __future__ import annotations

from typing import Any

from shardmill.training.models import ModelSpec
from shardmill.training.tensorflow.models import normalized

DEFAULT_IMAGE_SIZE = 8


def build(spec: ModelSpec) -> Any:
    """A convolution, batch normalisation, dropout, and a linear classifier."""
    import keras

    image = keras.Input(spec.image_shape)
    x = keras.layers.Conv2D(4, 3, name="stem")(normalized(image, spec))
    x = keras.layers.BatchNormalization(momentum=0.5, name="stem_bn")(x)
    x = keras.layers.GlobalAveragePooling2D()(keras.layers.ReLU()(x))
    x = keras.layers.Dropout(0.2, seed=spec.seed)(x)
    return keras.Model(image, keras.layers.Dense(spec.num_classes, name="logits")(x))
