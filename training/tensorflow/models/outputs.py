"""The output of a model: one tensor, or several. Imports TensorFlow."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def in_float32(outputs: Any) -> Any:
    """Return the output of a model in float32, whatever the type in which it computes."""
    return tf.nest.map_structure(lambda part: tf.cast(part, tf.float32), outputs)
