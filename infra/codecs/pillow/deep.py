"""Decode files of more than 8 bits to samples of 16 bits, for the conversion of their colours.

Some curves, such as linear light, have too few dark levels in 8 bits. Pillow gives no more for colours, so
other libraries decode such PNG, AVIF and HEIF.
"""

from __future__ import annotations

import importlib
import io
from typing import Any

import cv2
import numpy as np
from PIL import Image

from shardmill.infra.codecs.formats import ImageRejected, band_rows
from shardmill.infra.codecs.pillow.raster import AnyPixels, is_unscaled
from shardmill.infra.codecs.structure.png_chunks import PngFile
from shardmill.infra.extras import install


def deep_samples(
    image: Image.Image, mode: str, data: bytes, found: str, bits: int, png: PngFile | None
) -> AnyPixels | None:
    """Return the samples without opacity: uint16 [H, W] or [H, W, 3]; None for a file of 8 bits or less.

    Args:
        image: the file as Pillow loaded it.
        mode: "L" for grey, "RGB" for colours.
        data: the file; of a PNG the picture's own chunks.
        found: its format.
        bits: bits of a sample in the file.
        png: header of a PNG, or None.

    Raises:
        ImageRejected: the library for it is not installed ("unsupported").
    """
    if bits <= 8:
        return None
    if found == "png" and image.mode == "I;16" and png is not None:
        samples, significant = np.asarray(image), png.significant_bits
        bits = significant if is_unscaled(samples, significant) else 16
    elif found == "png":
        samples = np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), _DEEP_RGB))
    elif found == "avif":
        samples = _avif(data)
    elif found == "heif":
        samples = _heif(data)
        samples >>= 16 - bits
    else:
        return None
    if samples.dtype != np.uint16 or samples.shape[:2] != image.size[::-1]:
        return None
    if samples.ndim == 3:
        samples = samples[:, :, 0] if mode == "L" else samples[:, :, :3]
    if bits == 16:
        return np.ascontiguousarray(samples)
    table = np.rint(np.linspace(0, 65535, 1 << bits)).astype(np.uint16)
    scaled, rows = np.empty(samples.shape, np.uint16), band_rows(samples.shape[1])
    for top in range(0, len(samples), rows):  # numpy makes an index of 8 bytes of each sample
        table.take(samples[top : top + rows], out=scaled[top : top + rows], mode="clip")
    return scaled


_DEEP_RGB = cv2.IMREAD_ANYDEPTH | cv2.IMREAD_COLOR_RGB


def _avif(data: bytes) -> AnyPixels:
    try:
        import imagecodecs
    except ModuleNotFoundError as error:
        told = f"an AVIF of more than 8 bits with colours to convert; to read these, {install('prepare')}"
        raise ImageRejected("unsupported", told) from error
    return np.asarray(imagecodecs.avif_decode(data, index=0))


def _heif(data: bytes) -> AnyPixels:
    binding: Any = importlib.import_module("pi_heif")
    opened = binding.open_heif(io.BytesIO(data), convert_hdr_to_8bit=False)  # of mode "RGB;16" and the like
    primary = opened[opened.primary_index]
    width, height = primary.size
    rows = np.frombuffer(primary.data, np.uint16).reshape(height, -1)[:, : width * len(primary.mode[:-3])]
    return rows.reshape(height, width, -1).copy()  # its memory goes with the file
