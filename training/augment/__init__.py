"""What chance does to a training example. Every draw is a function of (seed, epoch, position).

``draw`` says what is to be done with the examples of a batch; their windows are cut and resized where they
are decoded; ``vary`` does the rest to each. What mixes examples, or is too dear for the host, is done to
whole batches on the device (``training.augment.batched``, which imports TensorFlow).
"""

from __future__ import annotations

from training.augment.draws import Draws, draw, flips, keys_at, vertical_flips, windows
from training.augment.pixels import vary
from training.augment.windows import Windows, central_windows, random_windows

__all__ = [
    "Draws",
    "Windows",
    "central_windows",
    "draw",
    "flips",
    "keys_at",
    "random_windows",
    "vary",
    "vertical_flips",
    "windows",
]
