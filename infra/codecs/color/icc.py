"""Convert colours to sRGB: ICC profiles through Little CMS; refuse those that are stated but not converted.

A profile is converted with the relative colorimetric intent and black point compensation. A profile that
means sRGB, whatever its name, is not converted. A profile that is damaged, or made for other channels than
the image has, counts as absent. An image without a profile is taken for sRGB. CMYK without a profile is
converted by complements, R = (1 - C)(1 - K).

Other files state their colours by code points (ITU-T H.273): PNG in its chunk cICP, AVIF and HEIF in a box
colr of type nclx (ISO/IEC 23008-12, 6.5.5). Decoders return the samples as stored: HDR and wide gamuts would
become records with wrong colours.
"""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageCms

from shardmill.infra.codecs.formats import ImageRejected
from shardmill.infra.codecs.structure.boxes import bounded_boxes, heif_parts

# Curves and primaries that every viewer of still images shows as sRGB; 2 means that the file does not say.
_CURVES_LIKE_SRGB = frozenset({1, 2, 6, 13, 14, 15})
_PRIMARIES_LIKE_SRGB = frozenset({1, 2, 5, 6, 7})
_HDR = {16: "HDR by PQ (SMPTE ST 2084)", 18: "HDR by HLG (ARIB STD-B67)"}
_CURVES = {4: "of gamma 2.2", 5: "of gamma 2.8", 8: "linear", 17: "of SMPTE ST 428-1"}
_PRIMARIES = {4: "NTSC 1953", 9: "BT.2020", 11: "DCI-P3", 12: "Display P3"}
_MAX_ITEMS = 10_000
# Rounding moves colours (0 to 255) by this much. A profile that moves them no further changes nothing.
_SAME_LEVELS = 2
_DESCRIPTION_CHARACTERS = 100
MAX_ICC_BYTES = 4 << 20  # profiles of printers, the largest, have 1 or 2 MiB
_SPACE_OF_MODE = {"L": "GRAY", "RGB": "RGB", "CMYK": "CMYK", "LAB": "Lab"}


@dataclass(frozen=True, slots=True)
class Conversion:
    """The conversion from a profile to sRGB.

    Attributes:
        description: name that the profile gives itself.
        transform: transform of Little CMS; several threads may use it at once.
    """

    description: str
    transform: ImageCms.ImageCmsTransform

    def apply(self, image: Image.Image) -> Image.Image:
        """Convert an image of the conversion's mode to mode "RGB" in sRGB."""
        return self.transform.apply(image)


def conversion_to_srgb(icc: bytes, mode: str) -> Conversion | None:
    """Return the conversion from a profile to sRGB, or None if it is not needed or not possible.

    Args:
        icc: the profile.
        mode: Pillow's mode of the images: "L", "RGB", "CMYK" or "LAB".
    """
    return _made_conversion(icc, mode) if len(icc) <= MAX_ICC_BYTES else None


# Photographs come with a few different profiles. Keeping more would let hostile ones fill the memory.
@functools.lru_cache(maxsize=32)
def _made_conversion(icc: bytes, mode: str) -> Conversion | None:
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(icc))
        if profile.profile.xcolor_space.strip() != _SPACE_OF_MODE[mode]:
            return None
        conversion = Conversion(_description(profile), _transform(profile, mode))
        return None if _changes_nothing(conversion, mode) else conversion
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return None  # a bad profile is no reason to refuse sound pixels


@functools.cache
def lab_to_srgb() -> Conversion:
    """Return the conversion of CIE L*a*b* images, which need no profile."""
    return Conversion("CIE L*a*b*", _transform(ImageCms.createProfile("LAB"), "LAB"))


def _transform(profile: Any, mode: str) -> ImageCms.ImageCmsTransform:
    return ImageCms.buildTransform(
        profile,
        ImageCms.createProfile("sRGB"),
        mode,
        "RGB",
        renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
        flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
    )


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


@dataclass(frozen=True, slots=True)
class ColorCodes:
    """Code points of ITU-T H.273.

    Attributes:
        primaries: ColourPrimaries, such as 1 for BT.709 and 9 for BT.2020.
        curve: TransferCharacteristics, such as 13 for sRGB and 16 for PQ.
    """

    primaries: int
    curve: int

    def check(self, *, has_profile: bool) -> None:
        """Check that the colours are those of sRGB, or converted.

        Args:
            has_profile: an ICC profile says how colours other than HDR are converted.

        Raises:
            ImageRejected: they are neither.
        """
        what = _HDR.get(self.curve, "")
        if not what and not has_profile:
            if self.curve not in _CURVES_LIKE_SRGB:
                what = _CURVES.get(self.curve, f"of transfer characteristics {self.curve}")
            elif self.primaries not in _PRIMARIES_LIKE_SRGB:
                what = f"those of {_PRIMARIES.get(self.primaries, f'colour primaries {self.primaries}')}"
        if what:
            raise ImageRejected("unsupported", f"its colours are {what}; convert it to sRGB first")


def codes_in_chunk(chunk: bytes) -> ColorCodes | None:
    """Return the code points of the content of a chunk cICP; None: it is none."""
    return ColorCodes(chunk[0], chunk[1]) if len(chunk) == 4 else None


def codes_in_boxes(data: bytes) -> ColorCodes | None:
    """Return the code points of the primary image of an AVIF or HEIF file; None: it states none."""
    parts = heif_parts(data)
    if b"pitm" not in parts or b"iprp" not in parts:
        return None
    at = parts[b"pitm"][0]
    primary = _number(data, at + 4, 2 if data[at : at + 1] == b"\x00" else 4)
    within = {name: (start, end) for name, start, end in bounded_boxes(data, *parts[b"iprp"])}
    if b"ipco" not in within or b"ipma" not in within:
        return None
    properties = list(bounded_boxes(data, *within[b"ipco"]))
    for index in _associated(data, *within[b"ipma"], primary):
        if 0 < index <= len(properties):
            name, start, _ = properties[index - 1]
            if name == b"colr" and data[start : start + 4] == b"nclx":
                return ColorCodes(_number(data, start + 4, 2), _number(data, start + 6, 2))
    return None


def _associated(data: bytes, start: int, end: int, item: int) -> list[int]:
    """Return the numbers of an item's properties, from 1, out of a box ipma (ISO/IEC 23008-12, 9.3)."""
    version, flags = _number(data, start, 1), _number(data, start + 1, 3)
    wide, at = 2 if flags & 1 else 1, start + 8
    for _ in range(min(_number(data, start + 4, 4), _MAX_ITEMS)):
        length = 2 if version < 1 else 4
        number, count = _number(data, at, length), _number(data, at + length, 1)
        at += length + 1
        if at + count * wide > end:
            return []
        if number == item:
            mask = 0x7FFF if wide == 2 else 0x7F  # the highest bit says whether a reader must know it
            return [_number(data, at + place * wide, wide) & mask for place in range(count)]
        at += count * wide
    return []


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")
