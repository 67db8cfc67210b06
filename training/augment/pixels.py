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

_LEVELS = np.arange(256, dtype=np.float64)
_LEFT_RIGHT, _TOP_BOTTOM, _BOTH = 1, 0, -1


def vary(image: Image, draws: Draws, row: int) -> Image:
    """Flip, jitter and erase one image as row ``row`` of the batch is to be.

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
    """p' = M p + k m, rounded and clipped once."""
    lift = color.lifts[row]
    shift = lift * (LUMA @ cv2.mean(image)[:3]) if lift else 0.0
    if color.gains_only:
        levels = np.rint(color.matrices[row, 0, 0] * _LEVELS + shift)
        cv2.LUT(image, np.clip(levels, 0, 255).astype(np.uint8), dst=image)
        return
    affine = np.empty((3, 4))
    affine[:, :3] = color.matrices[row]
    affine[:, 3] = shift
    cv2.transform(image, affine, dst=image)


def _erase(image: Image, erasing: ErasingDraws, row: int) -> None:
    top, left, height, width = erasing.boxes[row].tolist()
    if not height:
        return
    box = image[top : top + height, left : left + width]
    if erasing.fill == "noise":
        box[:] = noise(erasing.keys[row : row + 1], height, width)
    elif erasing.fill == "black":
        box[:] = 0
    else:
        box[:] = np.rint(cv2.mean(image)[:3])
