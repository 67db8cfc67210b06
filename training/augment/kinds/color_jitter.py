"""Colour jitter: brightness, contrast, saturation and hue of an image.

With pixels p (RGB, 0 to 255), luma weights w = (0.299, 0.587, 0.114) and m the image's mean luma:

    brightness  b p                              b uniform in [1 - brightness, 1 + brightness]
    contrast    c p + (1 - c) m                  c likewise
    saturation  s p + (1 - s) (w·p)              s likewise
    hue         p turned about the grey axis     by h turns, h uniform in [-hue, hue]

The factors are those of torchvision and Pillow; there the image is clipped to bytes after each step, here
once at the end. Unclipped, the four steps commute: saturation and hue do not change luma and grey. So they
are one matrix and one shift, p' = M p + k m, and their order need not be drawn. Hue is turned in the
chroma plane of YIQ (linear; torchvision goes through HSV).
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from shardmill.infra.preparation import SampleKind
from shardmill.infra.settings import Settings
from shardmill.infra.splitmix import U64
from shardmill.training.arrays import Floats
from shardmill.training.augment.kind import Array, Arrays, ImageAugmentation, cv2
from shardmill.training.draws import uniform

_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE = 600, 601, 602, 603  # streams
LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601

# The I and Q axes of NTSC; luma above them completes the basis.
_YIQ = np.stack([LUMA, [0.595716, -0.274453, -0.321263], [0.211456, -0.522591, 0.311135]])
_YIQ[1:] -= _YIQ[1:].mean(axis=1, keepdims=True)  # grey has no chroma, to the last bit
_RGB = np.linalg.inv(_YIQ)


class ColorJitterSettings(Settings):
    """How much brightness, contrast, saturation and hue may change. 0 leaves them alone."""

    brightness: float = Field(
        default=0.0, ge=0, le=1, description="factor of all values: 0.4 draws it from 0.6 to 1.4"
    )
    contrast: float = Field(
        default=0.0, ge=0, le=1, description="factor of the distance from the image's mean grey, likewise"
    )
    saturation: float = Field(
        default=0.0, ge=0, le=1, description="factor of the distance from each pixel's grey, likewise"
    )
    hue: float = Field(
        default=0.0, ge=0, le=0.5, description="turns of the colour circle: 0.1 draws from -36° to 36°"
    )

    @property
    def is_on(self) -> bool:
        """Whether anything may change."""
        return any((self.brightness, self.contrast, self.saturation, self.hue))


class _Fields(Settings):
    color_jitter: ColorJitterSettings = Field(
        default_factory=ColorJitterSettings, description="changes of brightness, contrast, saturation and hue"
    )


class ColorJitter(ImageAugmentation[_Fields]):
    """Changes colours: p' = matrices p + lifts m. Draws ``matrices`` [B, 3, 3] and ``lifts`` [B], float64."""

    Fields = _Fields
    turn = 30
    streams = range(_BRIGHTNESS, _HUE + 1)
    objects_follow = True
    name = "augment.color_jitter"

    @property
    def is_on(self) -> bool:
        """Whether anything may change."""
        return self.settings.color_jitter.is_on

    def draw(self, keys: U64, image_size: int) -> Arrays:
        """Draw the jitter of each image."""
        reach = self.settings.color_jitter
        brightness = _factors(keys, _BRIGHTNESS, reach.brightness)
        contrast = _factors(keys, _CONTRAST, reach.contrast)
        saturation = _factors(keys, _SATURATION, reach.saturation)
        turns = _factors(keys, _HUE, reach.hue) - 1.0
        colored = saturation_matrices(saturation) @ hue_matrices(turns)
        return {
            "matrices": (brightness * contrast)[:, None, None] * colored,
            "lifts": brightness * (1.0 - contrast),
        }

    def unfit(self, samples: SampleKind) -> str:
        """Return the settings of what needs luma; brightness is a factor of all values."""
        reach, names = self.settings.color_jitter, ("contrast", "saturation", "hue")
        return " and ".join(f"{self.name}.{one}" for one in names if getattr(reach, one))

    def apply(self, image: Array, drawn: Arrays, row: int) -> None:
        """Change the colours of an image in ten fractional bits, rounded and clipped once."""
        if image.dtype != np.uint8 or image.shape[2] != 3:
            brighter = image * drawn["matrices"][row, 0, 0]
            if image.dtype.kind == "u":
                brighter = np.rint(brighter).clip(0, np.iinfo(image.dtype).max)
            image[...] = brighter
            return
        lift = drawn["lifts"][row]
        affine = np.zeros((3, 4))
        affine[:, :3] = drawn["matrices"][row]
        if lift:
            affine[:, 3] = lift * (LUMA @ cv2.mean(image)[:3])
        cv2.transform(image, affine, dst=image)


def saturation_matrices(factors: Floats) -> Floats:
    """Return matrices that move colours towards grey (0) or away from it (above 1): float64 [B, 3, 3]."""
    kept = factors[:, None, None]
    mixed: Floats = kept * np.eye(3) + (1.0 - kept) * LUMA
    return mixed


def hue_matrices(turns: Floats) -> Floats:
    """Return matrices that turn all hues, from red to yellow if positive: float64 [B, 3, 3]."""
    angle = -2.0 * np.pi * turns  # from red to green the angle in the plane of I and Q falls
    rotation = np.zeros((turns.size, 3, 3))
    rotation[:, 0, 0] = 1.0
    rotation[:, 1, 1] = rotation[:, 2, 2] = np.cos(angle)
    rotation[:, 2, 1] = np.sin(angle)
    rotation[:, 1, 2] = -rotation[:, 2, 1]
    turned: Floats = _RGB @ rotation @ _YIQ
    return turned


def _factors(keys: U64, stream: int, reach: float) -> Floats:
    """Draw factors uniformly from [1 - reach, 1 + reach): float64 [B]."""
    return 1.0 + reach * (2.0 * uniform(keys, stream) - 1.0)
