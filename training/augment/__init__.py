"""Augment training examples. Every random number is a function of (seed, epoch, position).

``draw_parameters`` draws the parameters of a batch. The windows are cut and resized where images are decoded,
and ``augment_image`` does the rest to each image. What mixes examples, or is too slow for the host, is done
to whole batches on the device (``shardmill.training.tensorflow.augment.batched``, which imports TensorFlow).
"""

from __future__ import annotations

from shardmill.training.augment.image_operations import augment_image
from shardmill.training.augment.parameters import (
    AugmentParameters,
    draw_parameters,
    flips,
    keys_at,
    vertical_flips,
    windows,
)
from shardmill.training.augment.windows import Windows, central_windows, random_windows

__all__ = [
    "AugmentParameters",
    "Windows",
    "augment_image",
    "central_windows",
    "draw_parameters",
    "flips",
    "keys_at",
    "random_windows",
    "vertical_flips",
    "windows",
]
