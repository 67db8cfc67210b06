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

from dataclasses import dataclass

import numpy as np

from shardmill.infra.splitmix import U64
from shardmill.training.arrays import Floats
from shardmill.training.config.augment import ColorJitterSettings
from shardmill.training.order.random_numbers import uniform
from shardmill.training.order.streams import ImageStream

LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601

# The I and Q axes of NTSC; luma above them completes the basis.
_YIQ = np.stack([LUMA, [0.595716, -0.274453, -0.321263], [0.211456, -0.522591, 0.311135]])
_YIQ[1:] -= _YIQ[1:].mean(axis=1, keepdims=True)  # grey has no chroma, to the last bit
_RGB = np.linalg.inv(_YIQ)


@dataclass(frozen=True, slots=True)
class ColorParameters:
    """The colour transformation of each image: p' = matrices p + lifts m, where m is its mean luma.

    Attributes:
        matrices: float64 [B, 3, 3].
        lifts: float64 [B].
    """

    matrices: Floats
    lifts: Floats


def color_parameters(keys: U64, settings: ColorJitterSettings) -> ColorParameters | None:
    """Draw the jitter of each example; None if all four parts are off."""
    if not settings.is_on:
        return None
    brightness = _factors(keys, ImageStream.BRIGHTNESS, settings.brightness)
    contrast = _factors(keys, ImageStream.CONTRAST, settings.contrast)
    saturation = _factors(keys, ImageStream.SATURATION, settings.saturation)
    turns = _factors(keys, ImageStream.HUE, settings.hue) - 1.0
    colored = saturation_matrices(saturation) @ hue_matrices(turns)
    return ColorParameters(
        (brightness * contrast)[:, None, None] * colored,
        brightness * (1.0 - contrast),
    )


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
