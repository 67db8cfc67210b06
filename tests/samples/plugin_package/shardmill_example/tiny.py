"""A model of one layer, for each framework."""

from __future__ import annotations

from typing import Any

from shardmill.training.models import ModelSpec

DEFAULT_IMAGE_SIZE = 16


def build(spec: ModelSpec) -> Any:
    """Return a ``keras.Model`` from images [B, S, S, C] to logits [B, num_classes]."""
    import keras

    image = keras.Input(spec.image_shape, name="image")
    pixels = keras.layers.Flatten()(keras.layers.Rescaling(1 / 255)(image))
    return keras.Model(image, keras.layers.Dense(spec.num_classes, dtype="float32")(pixels))


def build_torch(spec: ModelSpec) -> Any:
    """Return a ``torch.nn.Module`` from images [B, C, S, S] to logits [B, num_classes]."""
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(spec.image_channels * spec.image_size**2, spec.num_classes))
