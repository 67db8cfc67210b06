"""RandAugment's operations (Cubuk et al. 2020) by ``torchvision.transforms.v2``, on the device of the images.

Rows with the same operation and the same amount are transformed together. Each row depends on its own pixels
and parameters alone. The results are those of ``shardmill.training.tensorflow.augment.rand_augment`` within
two grey levels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torchvision.transforms.v2 import functional

from shardmill.training.arrays import Ints
from shardmill.training.augment.batch_parameters import OPS, BatchParameters

_NOTHING = 128.0  # the grey of pixels that a warp leaves uncovered
_BRIGHTEST = 255  # torchvision refuses a threshold above it
_WARPS = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")


def rand_augment(images: Any, draws: BatchParameters) -> Any:
    """Apply the drawn operations to each image, one after the other.

    Args:
        images: uint8 [b, C, S, S], C 1 or 3, on any device.
        draws: the parameters of these rows; numpy arrays.

    Returns:
        uint8 [b, C, S, S], ``images`` itself if there are no operations.
    """
    for number in range(draws.ops.shape[1]):
        images = images.clone()
        for rows in _alike(draws, number):
            name, first = OPS[draws.ops[rows[0], number]], rows[0]
            if name != "identity":
                chosen = torch.from_numpy(rows).to(images.device)
                amount, warp = float(draws.amounts[first, number]), draws.warps[first, number].tolist()
                images[chosen] = _transformed(images[chosen], name, amount, warp)
    return images


def _alike(draws: BatchParameters, number: int) -> list[Ints]:
    """Return groups of rows that have the same operation with the same parameters."""
    columns = (draws.ops[:, number, None], draws.amounts[:, number, None], draws.warps[:, number])
    values, groups = np.unique(np.concatenate(columns, axis=1), axis=0, return_inverse=True)
    return [np.flatnonzero(groups.reshape(-1) == group) for group in range(len(values))]


def _transformed(images: Any, name: str, amount: float, warp: list[float]) -> Any:
    if name in _WARPS:
        return _warped(images, warp)
    return {
        "autocontrast": lambda: functional.autocontrast(images),
        "equalize": lambda: functional.equalize(images),
        "solarize": lambda: functional.solarize(images, amount) if amount <= _BRIGHTEST else images,
        "posterize": lambda: functional.posterize(images, 8 - round(math.log2(amount))),
        "color": lambda: functional.adjust_saturation(images, amount),
        "contrast": lambda: functional.adjust_contrast(images, amount),
        "brightness": lambda: functional.adjust_brightness(images, amount),
        "sharpness": lambda: functional.adjust_sharpness(images, amount),
    }[name]()


def _warped(images: Any, warp: list[float]) -> Any:
    """Turn, shear or shift images. Output (x, y) comes from input (a x + b y + c, d x + e y + f)."""
    a, b, c, d, e, f, _, _ = warp
    # The warp counts from the centre of the first pixel, torchvision from its corner.
    coefficients = [a, b, c + 0.5 * (1.0 - a - b), d, e, f + 0.5 * (1.0 - d - e), 0.0, 0.0]
    # Relative to the grey of uncovered pixels, which is then zero, as torchvision fills by default.
    relative = images.float() - _NOTHING
    moved = functional.perspective(relative, None, None, coefficients=coefficients)
    return (moved + _NOTHING).round_().clamp_(0, 255).to(torch.uint8)
