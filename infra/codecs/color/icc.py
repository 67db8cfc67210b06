"""Convert colours to sRGB by ICC profiles, through Little CMS.

Colours are converted with the relative colorimetric intent and black point compensation, unless their profile
means sRGB, whatever its name. Colours that a file states without a profile are converted by a profile that is
made for them, so that the same colours become the same pixels however they are stated.
"""

from __future__ import annotations

import functools
import io
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageCms

from shardmill.infra.codecs.color.stated import Stated
from shardmill.infra.codecs.formats import ImageRejected
from shardmill.infra.extras import install

# Rounding moves colours (0 to 255) by this much. A profile that moves them no further changes nothing.
_SAME_LEVELS = 2
_DESCRIPTION_CHARACTERS = 100
MAX_ICC_BYTES = 4 << 20  # profiles of printers, the largest, have 1 or 2 MiB
_SPACE_OF_MODE = {"L": "GRAY", "RGB": "RGB", "CMYK": "CMYK", "LAB": "Lab"}
_BLACK_AND_WHITE: dict[str, tuple[Any, Any]] = {
    "L": (0, 255), "RGB": ((0, 0, 0), (255, 255, 255)),
    "CMYK": ((0, 0, 0, 255), (0, 0, 0, 0)), "LAB": ((0, 128, 128), (255, 128, 128)),
}  # fmt: skip
_MIDDLE = 128
_INTENT = ImageCms.Intent.RELATIVE_COLORIMETRIC
_FLAGS = ImageCms.Flags.BLACKPOINTCOMPENSATION
# Little CMS would interpolate grey, Lab and 16 bits between few points: up to 36 levels off in dark colours.
_EXACT = ImageCms.Flags.NOOPTIMIZE


@functools.cache
def _srgb() -> ImageCms.ImageCmsProfile:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))


@dataclass(frozen=True, slots=True)
class Conversion:
    """The conversion from a profile to sRGB.

    Attributes:
        description: the profile's name for itself, or the name of the colours that it was made for.
        icc: the profile.
        transform: transform of Little CMS; several threads may use it at once.
    """

    description: str
    icc: bytes
    transform: ImageCms.ImageCmsTransform

    def apply(self, image: Image.Image) -> Image.Image:
        """Convert an image of the conversion's mode to mode "RGB" in sRGB."""
        if image.mode != "L":
            return self.transform.apply(image)
        levels = Image.fromarray(np.arange(256, dtype=np.uint8)[np.newaxis])
        return Image.fromarray(np.asarray(self.transform.apply(levels))[0][np.asarray(image)])

    def to_samples(
        self, samples: npt.NDArray[np.uint16], dtype: type[np.uint8 | np.uint16]
    ) -> npt.NDArray[Any]:
        """Convert samples of 16 bits, [H, W] or [H, W, 3], to sRGB of the type ``dtype``, [H, W, 3].

        Raises:
            ImageRejected: the library for it is not installed ("unsupported").
        """
        try:
            import imagecodecs
        except ModuleNotFoundError as error:
            told = f"16 bits with colours to convert; to read these, {install('prepare')}"
            raise ImageRejected("unsupported", told) from error
        levels = np.arange(1 << 16, dtype=np.uint16)[np.newaxis] if samples.ndim == 2 else samples
        converted = imagecodecs.cms_transform(
            np.ascontiguousarray(levels),
            self.icc,
            _srgb().tobytes(),
            colorspace="gray" if samples.ndim == 2 else "rgb",
            outcolorspace="rgb",
            outdtype=dtype,
            intent=int(_INTENT),
            flags=int(_FLAGS | _EXACT),
        )
        return np.asarray(converted[0][samples] if samples.ndim == 2 else converted)


def conversion_by_profile(icc: bytes, mode: str) -> tuple[Conversion | None, str]:
    """Return the conversion from a profile to sRGB, and what is wrong with the profile ("" for nothing).

    The conversion is None if the profile means sRGB, or if something is wrong with it.

    Args:
        icc: the profile; empty if the file does not hold it whole.
        mode: Pillow's mode of the images: "L", "RGB", "CMYK" or "LAB".
    """
    return _found(icc, mode) if len(icc) <= MAX_ICC_BYTES else (None, "ICC profile too long")


# Photographs come with a few different profiles. Keeping more would let hostile ones fill the memory.
@functools.lru_cache(maxsize=32)
def _found(icc: bytes, mode: str) -> tuple[Conversion | None, str]:
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(icc))
        space = profile.profile.xcolor_space.strip()
        if space != _SPACE_OF_MODE[mode]:
            printable = "".join(filter(str.isprintable, space))
            return None, f"ICC profile for {printable or 'unknown colours'}"
        conversion = Conversion(_description(profile), icc, _transform(profile, mode))
        if not _keeps_black_and_white(conversion, mode):
            return None, "ICC profile damaged"
        return None if _changes_nothing(conversion, mode) else conversion, ""
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return None, "ICC profile damaged"  # no reason to refuse sound pixels


@functools.lru_cache(maxsize=32)
def conversion_by_statement(stated: Stated, mode: str) -> Conversion | None:
    """Return the conversion to sRGB of images of mode "L" or "RGB"; None if they are in sRGB. Not for HDR."""
    if stated.is_srgb:
        return None
    icc = _made_profile(stated, mode)
    profile = ImageCms.ImageCmsProfile(io.BytesIO(icc))
    conversion = Conversion(stated.name, icc, _transform(profile, mode))
    return None if _changes_nothing(conversion, mode) else conversion


@functools.cache
def lab_to_srgb() -> Conversion:
    """Return the conversion of CIE L*a*b* images, which need no profile."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB"))
    return Conversion("CIE L*a*b*", profile.tobytes(), _transform(profile, "LAB"))


def _transform(profile: Any, mode: str) -> ImageCms.ImageCmsTransform:
    flags = _FLAGS | _EXACT if mode in ("L", "LAB") else _FLAGS
    return ImageCms.buildTransform(profile, _srgb(), mode, "RGB", renderingIntent=_INTENT, flags=flags)


def _keeps_black_and_white(conversion: Conversion, mode: str) -> bool:
    """Tell whether black stays dark and white bright; a profile that fails this would spoil the picture."""
    black, white = (
        conversion.apply(Image.new(mode, (1, 1), color)).getpixel((0, 0)) for color in _BLACK_AND_WHITE[mode]
    )
    return bool(max(black) < _MIDDLE <= min(white))  # type: ignore[arg-type]


def _changes_nothing(conversion: Conversion, mode: str) -> bool:
    levels = np.linspace(0, 255, 18).astype(np.uint8)
    if mode == "L":
        colors = levels[None, :]
        same = np.repeat(levels[None, :, None], 3, axis=2)
    elif mode == "RGB":
        colors = same = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(1, -1, 3)
    else:
        return False
    converted = np.asarray(conversion.apply(Image.fromarray(colors)), dtype=np.int16)
    return bool(np.abs(converted - same).max() <= _SAME_LEVELS)


def _description(profile: ImageCms.ImageCmsProfile) -> str:
    text = str(profile.profile.profile_description or "")
    printable = "".join(character for character in text if character.isprintable()).strip()
    return printable[:_DESCRIPTION_CHARACTERS] or "unnamed"


_D50_XYZ = (0.9642, 1.0, 0.8249)  # the white of ICC profiles
_D50 = (_D50_XYZ[0] / sum(_D50_XYZ), _D50_XYZ[1] / sum(_D50_XYZ))
# As the profiles of Display P3 have it; a table would move one colour in a hundred by one level.
_SRGB_CURVE = (2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)
_POINTS = 16 * 255 + 1  # of a curve: each level of 8 bits is one of them


def _made_profile(stated: Stated, mode: str) -> bytes:
    """Write a profile of primaries and a curve (ICC.1:2022, 8.3 and 8.4)."""
    if stated.has_srgb_curve:
        shape = b"para" + bytes(4) + b"\x00\x03\x00\x00" + _fractions(*_SRGB_CURVE)
    else:
        curve = np.rint(65535 * stated.linear(np.linspace(0, 1, _POINTS))).astype(">u2").tobytes()
        shape = b"curv" + bytes(4) + struct.pack(">I", _POINTS) + curve + b"\x00\x00"
    tags = {b"wtpt": _xyz(*_D50_XYZ)}
    if mode == "L":
        tags[b"kTRC"] = shape
    else:
        for name, column in zip(b"rgb", stated.to_xyz(_D50).T, strict=True):
            tags[bytes([name]) + b"XYZ"], tags[bytes([name]) + b"TRC"] = _xyz(*column), shape
    at, table, body = 132 + 12 * len(tags), b"", b""
    for tag, content in tags.items():
        table += tag + struct.pack(">II", at + len(body), len(content))
        body += content
    space = b"GRAY" if mode == "L" else b"RGB "
    head = struct.pack(">I", at + len(body)) + bytes(4) + b"\x04\x40\x00\x00mntr" + space + b"XYZ "
    head += bytes(12) + b"acsp" + bytes(28) + _fractions(*_D50_XYZ)
    return head + bytes(128 - len(head)) + struct.pack(">I", len(tags)) + table + body


def _xyz(*values: float) -> bytes:
    return b"XYZ " + bytes(4) + _fractions(*values)


def _fractions(*values: float) -> bytes:
    return struct.pack(f">{len(values)}i", *(round(value * 65536) for value in values))
