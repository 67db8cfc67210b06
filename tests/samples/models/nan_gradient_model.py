"""A linear model whose gradient is not a number in step ``NAN_AT`` of the run, while its loss is finite."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from shardmill.training.models import ModelSpec
from tests.samples.models import linear_model

NAN_AT = 6  # the last step of the second epoch of 20 examples by 8


class SpoilsGradient(keras.layers.Layer):  # type: ignore[misc]
    """Passes logits on, and counts the steps in a variable that checkpoints hold."""

    def build(self, _shape: Any) -> None:
        """Make the counter."""
        self.steps = self.add_weight(shape=(), initializer="zeros", trainable=False, name="steps")

    def call(self, logits: Any, training: bool = False) -> Any:
        """Return the logits. The gradient of a root is infinite at zero."""
        if not training:
            return logits
        self.steps.assign_add(1.0)
        spoils = tf.equal(self.steps.value, NAN_AT)
        return logits + tf.sqrt(tf.where(spoils, 0.0 * logits, 1.0)) - tf.where(spoils, 0.0, 1.0)


def build(spec: ModelSpec) -> Any:
    """The model."""
    image = keras.Input((spec.image_size, spec.image_size, 3))
    return keras.Model(image, SpoilsGradient()(linear_model.build(spec)(image)))
