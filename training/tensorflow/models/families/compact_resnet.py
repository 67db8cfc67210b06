"""A small residual network (He et al. 2016) for training from scratch on a machine without an accelerator.

0.69 million parameters. A training step at 96 pixels takes 2.6 ms of CPU time an image, where ``small_cnn``
takes 3.8: 340 images a second on two cores. From scratch on 3,068 photographs of clothes in ten classes it
reaches 79 % on the test split in 430 CPU seconds (40 epochs; recipe ``clothing-from-scratch-cpu``).
"""

from __future__ import annotations

from typing import Any

import keras

from shardmill.training.models.spec import ModelSpec
from shardmill.training.tensorflow.models.normalization import BatchNormalization, normalized

DEFAULT_IMAGE_SIZE = 96
_WIDTHS = (24, 48, 96, 192)


def build(spec: ModelSpec) -> Any:
    """Build a stem that divides the size by four, a residual block for each width, and a classifier."""
    inputs = keras.Input(spec.image_shape, name="image")
    x = _convolution(normalized(inputs, spec), _WIDTHS[0], spec, strides=2)
    x = keras.layers.ReLU()(x)
    x = keras.layers.MaxPooling2D(3, strides=2, padding="same")(x)
    for stage, width in enumerate(_WIDTHS):
        x = _residual_block(x, width, spec, strides=2 if stage else 1)
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = keras.layers.Dropout(spec.dropout, seed=spec.seed)(x)
    # float32 whatever the precision of the rest: a softmax in half precision loses its small values.
    logits = keras.layers.Dense(spec.num_classes, dtype="float32", name="logits")(x)
    return keras.Model(inputs, logits, name="compact_resnet")


def _residual_block(x: Any, width: int, spec: ModelSpec, *, strides: int) -> Any:
    """Add two convolutions to their input, which is averaged and projected if the shape changes."""
    y = keras.layers.ReLU()(_convolution(x, width, spec, strides=strides))
    y = _convolution(y, width, spec)
    if strides > 1:
        # Averaging keeps all pixels; a strided projection would drop three of four.
        x = keras.layers.AveragePooling2D(strides, padding="same")(x)
    if x.shape[-1] != width:
        x = _convolution(x, width, spec, size=1)
    return keras.layers.ReLU()(keras.layers.Add()([x, y]))


def _convolution(x: Any, width: int, spec: ModelSpec, *, size: int = 3, strides: int = 1) -> Any:
    """Convolve and normalise. Whole convolutions: on CPUs they are faster than separable ones."""
    x = keras.layers.Conv2D(
        width, size, strides=strides, padding="same", use_bias=False, kernel_initializer="he_normal"
    )(x)
    return BatchNormalization(momentum=0.9, synchronized=spec.synchronized)(x)
