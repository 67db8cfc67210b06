"""Image files in many formats. The same arguments give the same bytes with the same codec builds."""

from __future__ import annotations

import io
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image

from tests.samples.images.forms import rgb_profile

Pixels = npt.NDArray[np.uint8]

_ORIENTATION = 0x0112
_NOISE_STEP = 16  # pixels between two random colours


def picture(seed: int, height: int = 90, width: int = 120) -> Pixels:
    """Colour noise with soft edges: uint8 [H, W, 3]. Two seeds never look alike."""
    rng = np.random.default_rng(seed)
    shape = (height // _NOISE_STEP + 2, width // _NOISE_STEP + 2, 3)
    coarse = rng.integers(0, 256, shape, dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(smooth)


def image(seed: int, mode: str = "RGB", height: int = 90, width: int = 120) -> Image.Image:
    """The picture of a seed in one of Pillow's modes. Modes with alpha get a transparent left half."""
    colour = Image.fromarray(picture(seed, height, width))
    if mode == "I;16":
        return Image.fromarray(np.asarray(colour.convert("L")).astype(np.uint16) * 257)
    converted = colour.convert(mode)
    if mode.endswith("A"):
        alpha = Image.new("L", converted.size, 255)
        alpha.paste(0, (0, 0, width // 2, height))
        converted.putalpha(alpha)
    return converted


def saved(what: Image.Image, format_: str, **options: Any) -> bytes:
    """The file that Pillow writes."""
    sink = io.BytesIO()
    what.save(sink, format_, **options)
    return sink.getvalue()


def jpeg(seed: int, height: int = 90, width: int = 120, subsampling: str = "420", quality: int = 88) -> bytes:
    """A baseline JPEG file. ``subsampling``: 444, 422, 420, 440, 411 or Gray."""
    pixels = picture(seed, height, width)
    if subsampling == "Gray":
        grey = np.ascontiguousarray(pixels[:, :, :1])
        return bytes(simplejpeg.encode_jpeg(grey, quality, "GRAY", "Gray"))
    return bytes(simplejpeg.encode_jpeg(pixels, quality, "RGB", subsampling))


def turned(seed: int, orientation: int, format_: str = "JPEG") -> bytes:
    """A file with an EXIF orientation, 1 to 8."""
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    return saved(image(seed), format_, exif=exif)


def profiled(seed: int, format_: str) -> bytes:
    """A file with an ICC profile that exchanges red and green."""
    return saved(image(seed), format_, icc_profile=rgb_profile(swapped=True))


def deep_png(seed: int) -> bytes:
    """A PNG file with 16 bits a sample and three channels."""
    _, data = cv2.imencode(".png", picture(seed)[:, :, ::-1].astype(np.uint16) * 257)
    return bytes(data)


def animated(seed: int, format_: str) -> bytes:
    """A file of two frames."""
    return saved(image(seed), format_, save_all=True, append_images=[image(seed + 1)])
