"""Decode, crop and resize windows of stored images, with libraries that release the GIL; turn them grey.

TensorFlow's kernels do the same for 2,900 images a second on two cores where libjpeg-turbo and OpenCV give
4,500 (256-pixel photographs, random windows to 224). Against
``shardmill.training.tensorflow.data.preprocess``, which is TensorFlow's way, no pixel of a photograph differs
by more than a few grey levels (tests state how many).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg

from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs import decode as decode_any
from shardmill.infra.codecs.arrays import decode_samples, kind_of
from shardmill.infra.codecs.geometry import resize_samples
from shardmill.infra.codecs.jpeg.scales import SEEN, scale_for
from shardmill.infra.codecs.jpeg.segments import first_rows
from shardmill.infra.errors import ConfigError, CorruptDataError
from shardmill.infra.native.area import area_average, window_average
from shardmill.infra.native.bilinear import resize_bilinear
from shardmill.infra.preparation import ARRAY, SampleKind, SampleType
from shardmill.training.config.data import Decoding

# ITU-R BT.601 in the fixed point of Pillow: shares of red, green and blue in 2^16. float32 computes the sums
# exactly, since all of them are whole and below 2^24.
LUMA_SHARES = (19595, 38470, 7471)
LUMA_ONE = 1 << 16
_SHARES = np.array(LUMA_SHARES, np.float32)[:, None]


def luma(images: Pixels) -> Pixels:
    """Return the luma of images; three equal channels become one of the same values.

    Args:
        images: uint8 [..., 3].

    Returns:
        uint8 [..., 1].
    """
    sums = images.astype(np.float32) @ _SHARES
    return ((sums.astype(np.int32) + LUMA_ONE // 2) >> 16).astype(np.uint8)


Pixels = npt.NDArray[Any]  # uint8, uint16 or float32
Window = tuple[int, int, int, int]  # y, x, height, width (pixels)
Edges = tuple[float, float, float, float]  # the same

RGB = SampleKind("uint8", 3)

# Sides that shrink by at most this factor are interpolated. Every stored pixel still counts then, photographs
# do not alias visibly (median PSNR against averaging at 1.25: 48 dB, at 1.5: 45), and averaging takes four
# times as long.
INTERPOLATED_UP_TO = 1.5


class Cut(NamedTuple):
    """A window of a decoded image.

    Attributes:
        pixels: [h, w, C].
        edges: y, x, height, width of the window within them, if its edges lie inside pixels.
    """

    pixels: Pixels
    edges: Edges | None = None


def decode_window(
    image: bytes | memoryview,
    encoding: str,
    shape: tuple[int, int, int],
    window: Window,
    out: Pixels,
    mirrored: bool = False,
    decoding: Decoding = "scaled",
) -> None:
    """Decode a window of a stored image and resize it into ``out``.

    Args:
        image: the stored image.
        encoding: the manifest's ``image_encoding``.
        shape: height, width and channels of the stored image (pixels).
        window: y, x, height, width (pixels).
        out: uint8 [S, S, 3], written; grey in three equal channels. Of images that are not common
            (``SampleKind``) [S, S, C] of their type.
        mirrored: mirror it from left to right.
        decoding: "whole" decodes a JPEG at its full size, however large the window.

    Raises:
        CorruptDataError: the image cannot be decoded, or is not of ``shape``.
        ConfigError: ``encoding`` is not known.
    """
    cut = cut_window(image, encoding, shape, window, out.shape[0], kind_of(out), decoding)
    resize_into(cut, out, mirrored)


def cut_window(
    image: bytes | memoryview,
    encoding: str,
    shape: tuple[int, int, int],
    window: Window,
    size: int,
    samples: SampleKind = RGB,
    decoding: Decoding = "scaled",
) -> Cut:
    """Decode a window for an image of ``size``, without resizing it; arguments as for ``decode_window``.

    A JPEG window at least three times as large as ``size`` is decoded at a half, a quarter or an eighth
    (``infra.codecs.jpeg.scales``) if ``decoding`` is "scaled".

    Returns:
        Pixels [h, w, 3], of images that are not common [h, w, C] of their type.
    """
    if not samples.is_common:
        pixels, scale, rows = _decode_samples(image, encoding, shape, samples), 1, shape[0]
    elif encoding == "jpeg":
        ratio = min(window[2:]) / size if decoding == "scaled" else 1.0
        pixels, scale, rows = _decode_jpeg(image, shape, window, scale_for(ratio, SEEN))
    else:
        pixels, scale, rows = _decode_other(image, encoding, shape), 1, shape[0]
    if pixels.shape[:2] != (-(-rows // scale), -(-shape[1] // scale)):
        raise CorruptDataError(f"the image has {pixels.shape[:2]} pixels, but its record says {shape[:2]}")
    if scale > 1:
        return _cut_scaled(pixels, scale, window)
    top, left, height, width = window
    return Cut(pixels[top : top + height, left : left + width])


def resize_into(image: Pixels | Cut, out: Pixels, mirrored: bool = False) -> None:
    """Resize without visible aliasing: average the sides that shrink, interpolate those that grow.

    Args:
        image: uint8 [h, w, 3], or any [h, w, C], which is averaged wherever it shrinks; or a window of it.
        out: [S, T, C] of the same type, written.
        mirrored: mirror it from left to right.
    """
    pixels, edges = image if isinstance(image, Cut) else (image, None)
    if not kind_of(pixels).is_common:
        resized = resize_samples(pixels, (out.shape[0], out.shape[1]))
        out[...] = resized[:, ::-1] if mirrored else resized
        return
    height, width = pixels.shape[:2]
    rows, columns = out.shape[:2]
    if edges is not None:
        planes = [window_average(plane, edges, (rows, columns)) for plane in cv2.split(pixels)]
        pixels = cast(Pixels, cv2.merge(planes))
    elif height > rows * INTERPOLATED_UP_TO or width > columns * INTERPOLATED_UP_TO:
        pixels = area_average(pixels, (min(height, rows), min(width, columns)))
    if pixels.shape != out.shape:
        resize_bilinear(pixels, out, mirrored)
    elif mirrored:
        cv2.flip(pixels, 1, dst=out)
    else:
        out[...] = pixels


def _cut_scaled(pixels: Pixels, scale: int, window: Window) -> Cut:
    """Cut a window out of an image decoded at ``1 / scale``."""
    top, left, height, width = (side / scale for side in window)
    rows, columns = slice(int(top), math.ceil(top + height)), slice(int(left), math.ceil(left + width))
    return Cut(pixels[rows, columns], (top % 1, left % 1, height, width))


def _decode_jpeg(
    image: bytes | memoryview, shape: tuple[int, int, int], window: Window, scale: int
) -> tuple[Pixels, int, int]:
    """Decode a JPEG at ``1 / scale``, of its rows only those down to the bottom of a window.

    With random windows of 8 to 100 % of a photograph this saves a sixth of the time.

    Returns:
        uint8 [ceil(rows / scale), ceil(w / scale), 3], the scale, and the number of rows.
    """
    bottom = window[0] + window[2] + 2 * scale  # rounding and interpolation reach as far
    upper, rows = first_rows(image, shape[:2], bottom)
    try:
        # Not strict: preparation has already judged images that libjpeg warns about.
        pixels = simplejpeg.decode_jpeg(
            upper,
            "RGB",
            min_height=-(-rows // scale) if scale > 1 else 0,
            min_width=-(-shape[1] // scale) if scale > 1 else 0,
            min_factor=scale,
            strict=False,
        )
    except ValueError:
        return _decode_rejected(bytes(image)), 1, shape[0]
    return pixels, scale, rows


def _decode_rejected(image: bytes) -> Pixels:
    """Decode an image that the fast decoder refuses with the careful one.

    Raises:
        CorruptDataError: that one does not either.
    """
    try:
        return decode_any(image, 3).pixels
    except ImageRejected as error:
        raise CorruptDataError(f"the image cannot be decoded: {error}") from error


def _decode_samples(
    image: bytes | memoryview, encoding: str, shape: tuple[int, int, int], samples: SampleKind
) -> Pixels:
    """Decode an image that is not common, or take it from a cache of decoded ones: [h, w, C]."""
    if shape[2] != samples.channels:
        raise CorruptDataError(f"the record says {shape[2]} channels, the manifest {samples.channels}")
    if encoding == "raw":
        return _raw(image, shape, samples.dtype)
    if encoding not in ("png", ARRAY):
        raise ConfigError(f"images stored as {encoding!r} cannot be read", "use a newer release of Shardmill")
    return decode_samples(image, encoding, shape, samples.dtype)


def _raw(image: bytes | memoryview, shape: tuple[int, int, int], dtype: SampleType) -> Pixels:
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if len(image) != size:
        raise CorruptDataError(f"raw pixels: {len(image)} bytes do not fill the shape {shape}")
    return np.frombuffer(image, dtype).reshape(shape)


def _decode_other(image: bytes | memoryview, encoding: str, shape: tuple[int, int, int]) -> Pixels:
    """Decode an image that is no JPEG: uint8 [h, w, 3]."""
    if encoding == "raw":
        pixels = _raw(image, shape, "uint8")
        return pixels if shape[2] == 3 else cast(Pixels, cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB))
    if encoding not in ("png", "webp"):
        raise ConfigError(f"images stored as {encoding!r} cannot be read", "use a newer release of Shardmill")
    decoded = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR_RGB)
    return _decode_rejected(bytes(image)) if decoded is None else cast(Pixels, decoded)
