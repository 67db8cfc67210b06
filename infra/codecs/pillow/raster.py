"""Bring a loaded image of any mode to 8 bits in sRGB, or to the samples that a mask has.

Transparent pixels are composited on a background.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from shardmill.infra.codecs.color import choose_conversion
from shardmill.infra.codecs.color.icc import lab_to_srgb
from shardmill.infra.codecs.color.stated import Statement
from shardmill.infra.codecs.formats import ImageRejected, Pixels, Wanted
from shardmill.infra.codecs.structure.png_chunks import PngFile

AnyPixels = npt.NDArray[Any]
Deep = Callable[[str], AnyPixels | None]

_DEEP = "I;16"  # the mode of grey of 16 bits


@dataclass(frozen=True, slots=True)
class FlatImage:
    """An opaque image in sRGB.

    Attributes:
        image: image of mode "L" or "RGB".
        icc_profile, had_alpha, note: as in SourceFacts.
    """

    image: Image.Image
    icc_profile: str | None
    had_alpha: bool
    note: str

    def pixels(self, channels: int) -> Pixels:
        """Return uint8 [H, W, channels], with 1 or 3 channels."""
        pixels = np.asarray(_in_mode(self.image, "L" if channels == 1 else "RGB"))
        return pixels[:, :, np.newaxis] if channels == 1 else pixels


def _in_mode(image: Image.Image, mode: str) -> Image.Image:
    """Convert an image, but return the image itself if it has the mode: Pillow would copy it."""
    return image if image.mode == mode else image.convert(mode)


def flatten(
    image: Image.Image,
    stated: Sequence[Statement],
    bits: int,
    png: PngFile | None,
    wanted: Wanted,
    deep: Deep,
) -> FlatImage:
    """Bring a loaded image of any mode to sRGB.

    Args:
        image: image of any mode that a decoder returns.
        stated: what the file states of its colours, what wins first.
        bits: bits of a sample in the file.
        png: header and chunks of a PNG, or None for another format.
        wanted: its background and what becomes of HDR.
        deep: see ``composited``.
    """
    color = _color(image, png.significant_bits if png is not None else None)
    return composited(color, _alpha(image, bits, png), stated, wanted, deep)


def is_flattened_whole(image: Image.Image, bits: int, stated: Sequence[Statement]) -> bool:
    """Tell whether ``flatten`` must see the whole image; it brings bands of others to the same pixels.

    Of deep files another library decodes what is transparent, and what has to be converted.
    """
    return image.mode == _DEEP or (bits > 8 and (bool(stated) or "transparency" in image.info))


def composited(
    color: Image.Image,
    alpha: Image.Image | None,
    stated: Sequence[Statement],
    wanted: Wanted,
    deep: Deep = lambda mode: None,
) -> FlatImage:
    """Bring colours to sRGB, and composite them on a background.

    Args:
        color: picture of mode "L", "RGB", "CMYK" or "LAB".
        alpha: the opacity, of mode "L"; None if every pixel is opaque.
        stated: what the file states of its colours, what wins first.
        wanted: its background and what becomes of HDR.
        deep: returns the samples of ``color``, whose mode it is given, in 16 bits: [H, W] of "L" or [H, W, 3]
            of "RGB"; None if the file has no more than 8 bits.
    """
    conversion, note = choose_conversion(stated, color.mode, wanted.hdr)
    if conversion is not None:
        samples = deep(color.mode)
        if samples is None:
            color = conversion.apply(color)
        else:
            color = Image.fromarray(conversion.to_samples(samples, np.uint8))
    elif color.mode == "LAB":
        color = lab_to_srgb().apply(color)
    elif color.mode == "CMYK":
        color = color.convert("RGB")
    had_alpha = alpha is not None and alpha.getextrema() != (255, 255)
    if alpha is not None and had_alpha:
        behind = Image.new("RGB", color.size, wanted.background)
        behind.paste(_in_mode(color, "RGB"), mask=alpha)
        color = behind
    return FlatImage(color, conversion.description if conversion is not None else None, had_alpha, note)


def _color(image: Image.Image, png_bits: int | None) -> Image.Image:
    """Return the image without its transparency, as mode "L" or "RGB"."""
    if image.mode == _DEEP:
        return _deep_to_grey(image, png_bits)
    if image.mode in ("L", "RGB"):
        return image
    if image.mode in ("1", "LA", "La"):
        return image.convert("L")
    if image.mode in ("RGBA", "RGBX") or not image.has_transparency_data:
        return image.convert("RGB")
    return image.convert("RGBA").convert("RGB")  # this way transparent pixels keep their colours


def _deep_to_grey(image: Image.Image, significant_bits: int | None) -> Image.Image:
    """Convert grey of 16 bits to mode "L", by its high bytes.

    If the samples were not scaled to 16 bits, white is the largest sample of sBIT.
    """
    samples, bits = np.asarray(image), significant_bits or 16
    if not is_unscaled(samples, bits):
        return Image.fromarray((samples >> 8).astype(np.uint8))
    return Image.fromarray(np.rint(samples * (255 / ((1 << bits) - 1))).astype(np.uint8))


def is_unscaled(samples: AnyPixels, bits: int) -> bool:
    """Tell whether samples of a PNG of 16 bits are numbers of fewer bits, not scaled up.

    Some writers state the bits by sBIT, but leave out the scaling that the specification asks for. Then no
    sample reaches 2^bits, and the low bits are in use.
    """
    return bool(samples.max(initial=0) < 1 << bits and (samples & ((1 << (16 - bits)) - 1)).any())


def _alpha(image: Image.Image, bits: int, png: PngFile | None) -> Image.Image | None:
    """Return the opacity as mode "L", or None if every pixel is opaque."""
    clear = image.info.get("transparency")
    if isinstance(clear, int) and image.mode == "1":
        return _opaque_but(np.asarray(image) == bool(clear))
    if isinstance(clear, int) and (image.mode == "L" or image.mode == _DEEP):
        # ``clear`` is a sample of the file. Pillow has scaled samples of fewer than 8 bits to 8.
        scale = 255 // ((1 << bits) - 1) if image.mode == "L" and bits < 8 else 1
        return _opaque_but(np.asarray(image) == clear * scale)
    if isinstance(clear, tuple) and image.mode == "RGB":
        if png is not None and bits > 8:
            # Pillow keeps only the high bytes, in which other colours may be the same.
            deep = cv2.imdecode(np.frombuffer(png.picture, np.uint8), cv2.IMREAD_UNCHANGED)
            return _opaque_but(np.asarray(deep)[:, :, 3] == 0)
        return _opaque_but((np.asarray(image) == clear).all(axis=2))
    if not image.has_transparency_data:
        return None
    return _in_mode(image, "RGBA").getchannel("A")


def _opaque_but(clear: Any) -> Image.Image:
    return Image.fromarray(np.where(clear, np.uint8(0), np.uint8(255)))


_OPAQUE = 255


def samples_of(image: Image.Image, bits: int, in_color: bool) -> AnyPixels:
    """Return the samples of an image as Pillow loaded it.

    An image with a palette gives its indexes, one of a bit a sample gives 0 and 1.

    Args:
        image: loaded.
        bits: bits of a sample in the file.
        in_color: return the colours of all images instead.

    Returns:
        uint8 or uint16 [H, W, 1], or uint8 [H, W, 3] of an image in colour.

    Raises:
        ImageRejected: its samples have another type ("unsupported").
    """
    if in_color and image.mode in ("1", "L", "P"):
        image, bits = image.convert("RGB"), 8
    if image.mode in ("RGB", "RGBA", "RGBX"):
        return _colors(image, bits)
    if image.mode == "LA":
        _check_opaque(image)
        return np.asarray(image)[:, :, :1]
    return _numbers(image, bits)[:, :, np.newaxis]


def _numbers(image: Image.Image, bits: int) -> AnyPixels:
    samples = np.asarray(image)
    if image.mode in ("1", "P"):
        return samples.astype(np.uint8)
    if image.mode == "L":
        # Pillow scales samples of 2 and 4 bits to 8.
        return samples // np.uint8(255 // ((1 << bits) - 1)) if bits in (2, 4) else samples
    if image.mode == _DEEP:
        return samples.astype(np.uint16)
    raise ImageRejected("unsupported", f"its pixels are neither whole numbers nor RGB (mode {image.mode})")


def _colors(image: Image.Image, bits: int) -> AnyPixels:
    if bits > 8:
        raise ImageRejected("unsupported", f"colours of {bits} bits; 8 bits are read")
    if image.mode == "RGBA":
        _check_opaque(image)
    return np.ascontiguousarray(np.asarray(image)[:, :, :3])


def _check_opaque(image: Image.Image) -> None:
    low, _ = image.getchannel("A").getextrema()
    if low != _OPAQUE:
        raise ImageRejected("unsupported", "it has transparent pixels, which have no certain class")
