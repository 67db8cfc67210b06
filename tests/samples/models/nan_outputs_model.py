"""A linear model that gives NaN where it is evaluated, although its weights are finite."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from shardmill.training.models import ModelSpec
from tests.samples.models import linear_model


class NotInEvaluation(keras.layers.Layer):  # type: ignore[misc]
    """Passes logits on in training."""

    def call(self, logits: Any, training: bool = False) -> Any:
        """Return the logits, or NaN."""
        return logits if training else logits * tf.constant(float("nan"), logits.dtype)


def build(spec: ModelSpec) -> Any:
    """The model."""
    image = keras.Input((spec.image_size, spec.image_size, 3))
    return keras.Model(image, NotInEvaluation()(linear_model.build(spec)(image)))
