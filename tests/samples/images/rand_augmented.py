"""Reference results of RandAugment's operations: by Pillow, and warps in float64."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageEnhance, ImageOps

SIZE = 32
WARPS = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
Batch = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def images_of(num: int) -> Batch:
    """Smooth, of few contrasts, so that stretching and equalising have something to do."""
    rng = np.random.default_rng(7)
    coarse = rng.integers(40, 200, (num, 4, 4, 3), dtype=np.uint8)
    fine = np.repeat(np.repeat(coarse, SIZE // 4, axis=1), SIZE // 4, axis=2)
    noisy: Batch = (fine + rng.integers(0, 20, fine.shape)).astype(np.uint8)
    return noisy


def operated(image: Batch, name: str, amount: float, warp: Floats) -> npt.NDArray[np.float64]:
    """The image, uint8 [SIZE, SIZE, 3], after an operation."""
    if name in WARPS:
        return _warped(image, warp)
    return _by_pillow(name, image, float(amount)).astype(np.float64)


def _by_pillow(name: str, image: Batch, amount: float) -> Batch:
    picture = Image.fromarray(image)
    done = {
        "identity": lambda: picture,
        "autocontrast": lambda: ImageOps.autocontrast(picture),
        "equalize": lambda: ImageOps.equalize(picture),
        "solarize": lambda: ImageOps.solarize(picture, round(amount)),
        "posterize": lambda: ImageOps.posterize(picture, 8 - int(np.log2(amount))),
        "color": lambda: ImageEnhance.Color(picture).enhance(amount),
        "contrast": lambda: ImageEnhance.Contrast(picture).enhance(amount),
        "brightness": lambda: ImageEnhance.Brightness(picture).enhance(amount),
        "sharpness": lambda: ImageEnhance.Sharpness(picture).enhance(amount),
    }[name]()
    return np.asarray(done)


def _warped(image: Batch, warp: Floats) -> npt.NDArray[np.float64]:
    """The image with linear interpolation, grey beyond its border: in float64, pixel by pixel."""
    framed = np.full((SIZE + 80, SIZE + 80, 3), 128.0)
    framed[40:-40, 40:-40] = image
    y, x = np.mgrid[:SIZE, :SIZE].astype(np.float64)
    a, b, c, d, e, f, _, _ = warp.astype(np.float64)
    column, row = a * x + b * y + c + 40, d * x + e * y + f + 40
    left, top = np.floor(column).astype(int), np.floor(row).astype(int)
    right, low = (column - left)[..., None], (row - top)[..., None]
    upper = framed[top, left] * (1 - right) + framed[top, left + 1] * right
    lower = framed[top + 1, left] * (1 - right) + framed[top + 1, left + 1] * right
    return upper * (1 - low) + lower * low
