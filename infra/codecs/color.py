"""Convert colours to sRGB: ICC profiles through Little CMS.

A profile is converted with the relative colorimetric intent and black point compensation. A profile that
means sRGB, whatever its name, is not converted. A profile that is damaged, or made for other channels than
the image has, counts as absent. An image without a profile is taken for sRGB. CMYK without a profile is
converted by complements, R = (1 - C)(1 - K).
"""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageCms

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
