"""What is done to an image after its window is cut and resized: flips, colour jitter, erasing.

Everything is done in the image's own memory by OpenCV on bytes, which lets go of the GIL.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from training.augment.color import LUMA, ColorDraws
from training.augment.draws import Draws
from training.augment.erasing import ErasingDraws, noise

Image = npt.NDArray[np.uint8]

# Examples are varied side by side, one a thread; a pool in each call would only fight that.
cv2.setNumThreads(1)

_LEFT_RIGHT, _TOP_BOTTOM, _BOTH = 1, 0, -1


def vary(image: Image, draws: Draws, row: int) -> Image:
    """Flip, jitter and erase one image as row ``row`` of the batch is to be.

    At 224 × 224 it takes, in µs of one core: a flip 8, jitter 35, erasing with black 9, the mean colour 14,
    noise 22. (To draw all that takes 4 to 7.)

    Args:
        image: uint8 [S, S, 3]; it is changed, unless it is read-only.
        draws: of the batch.
        row: which of it.

    Returns:
        uint8 [S, S, 3]: ``image`` itself, or a copy of one that is read-only.
    """
    if not image.flags.writeable:
        image = image.copy()
    if draws.flip_left_right[row]:
        cv2.flip(image, _BOTH if draws.flip_top_bottom[row] else _LEFT_RIGHT, dst=image)
    elif draws.flip_top_bottom[row]:
        cv2.flip(image, _TOP_BOTTOM, dst=image)
    if draws.color is not None:
        _jitter(image, draws.color, row)
    if draws.erasing is not None:
        _erase(image, draws.erasing, row)
    return image


def _jitter(image: Image, color: ColorDraws, row: int) -> None:
    """p' = M p + k m, rounded and clipped once; OpenCV's matrices of bytes have ten bits after the point."""
    lift = color.lifts[row]
    affine = np.zeros((3, 4))
    affine[:, :3] = color.matrices[row]
    if lift:
        affine[:, 3] = lift * (LUMA @ cv2.mean(image)[:3])
    cv2.transform(image, affine, dst=image)


def _erase(image: Image, erasing: ErasingDraws, row: int) -> None:
    top, left, height, width = erasing.boxes[row].tolist()
    if not height:
        return
    if erasing.fill == "noise":
        image[top : top + height, left : left + width] = noise(erasing.keys[row : row + 1], height, width)
        return
    color = np.rint(cv2.mean(image)[:3]).tolist() if erasing.fill == "mean" else (0, 0, 0)
    cv2.rectangle(image, (left, top, width, height), color, cv2.FILLED)
