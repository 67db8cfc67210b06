"""Flip, jitter and erase an image after its window was cut and resized.

OpenCV does everything in the image's own memory, and releases the GIL.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from shardmill.training.augment.color import LUMA, ColorParameters
from shardmill.training.augment.erasing import ErasingParameters, noise
from shardmill.training.augment.parameters import AugmentParameters

Image = npt.NDArray[np.uint8]

# Threads augment one example each; a pool of threads in each call would only slow them down.
cv2.setNumThreads(1)

_LEFT_RIGHT, _TOP_BOTTOM, _BOTH = 1, 0, -1


def augment_image(image: Image, parameters: AugmentParameters, row: int) -> Image:
    """Flip, jitter and erase one image with the parameters of row ``row`` of the batch.

    At 224 × 224 pixels this takes, in µs of one core: a flip 8, jitter 35, erasing with black 9, with the
    mean colour 14, with noise 22. Drawing the parameters takes 4 to 7.

    Args:
        image: uint8 [S, S, 3]; changed in place, unless it is read-only.
        parameters: the parameters of the batch.
        row: the row of the image in the batch.

    Returns:
        uint8 [S, S, 3]: ``image`` itself, or a copy of one that is read-only.
    """
    if not image.flags.writeable:
        image = image.copy()
    if parameters.flip_left_right[row]:
        cv2.flip(image, _BOTH if parameters.flip_top_bottom[row] else _LEFT_RIGHT, dst=image)
    elif parameters.flip_top_bottom[row]:
        cv2.flip(image, _TOP_BOTTOM, dst=image)
    if parameters.color is not None:
        _jitter(image, parameters.color, row)
    if parameters.erasing is not None:
        _erase(image, parameters.erasing, row)
    return image


def _jitter(image: Image, color: ColorParameters, row: int) -> None:
    """Apply p' = M p + k m, rounded and clipped once. OpenCV computes it with ten fractional bits."""
    lift = color.lifts[row]
    affine = np.zeros((3, 4))
    affine[:, :3] = color.matrices[row]
    if lift:
        affine[:, 3] = lift * (LUMA @ cv2.mean(image)[:3])
    cv2.transform(image, affine, dst=image)


def _erase(image: Image, erasing: ErasingParameters, row: int) -> None:
    top, left, height, width = erasing.boxes[row].tolist()
    if not height:
        return
    if erasing.fill == "noise":
        image[top : top + height, left : left + width] = noise(erasing.keys[row : row + 1], height, width)
        return
    color = np.rint(cv2.mean(image)[:3]).tolist() if erasing.fill == "mean" else (0, 0, 0)
    cv2.rectangle(image, (left, top, width, height), color, cv2.FILLED)
