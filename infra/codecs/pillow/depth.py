"""Bring samples of more than 8 bits to 8 bits.

White is the largest sample of the depth that the file declares, not the largest sample in the picture. So a
dark picture of a scene stays dark.

- Integers: PNG and TIFF state their bits (white is 4,095 in a TIFF of 12 bits). Some files of 16 bits hold
  fewer and declare it: a TIFF by a MaxSampleValue of the form 2^n - 1; a PNG by sBIT, if its samples are not
  scaled to 16 bits as the specification demands (no sample reaches 2^sBIT, and the low bits are in use).
- Floating-point samples run from 0 to 1, or between SMinSampleValue and SMaxSampleValue.
- Signed 16-bit and all 32-bit integers need those two tags. Without them the white sample is not known.

Samples that use all 16 bits, grey and colour, keep their high byte, as in all common decoders, TensorFlow's
included. That is within one level of the exact value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from infra.codecs.formats import ImageRejected

DEEP_MODES = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")

_BITS_PER_SAMPLE, _PHOTOMETRIC, _SAMPLE_FORMAT = 258, 262, 339
_MAX_SAMPLE, _S_MIN_SAMPLE, _S_MAX_SAMPLE = 281, 340, 341
_WHITE_IS_ZERO = 0


def deep_to_grey(image: Image.Image, png_bits: int | None) -> Image.Image:
    """Convert a grey image of deep samples (DEEP_MODES) to mode "L".

    Args:
        image: loaded.
        png_bits: value of a PNG's sBIT chunk, or None for another format.

    Raises:
        ImageRejected: the range of the samples is not known ("unsupported").
    """
    samples = np.asarray(image)
    tags: dict[int, Any] = dict(getattr(image, "tag_v2", {}))
    if image.mode.startswith("I;16"):
        low, high = 0.0, float(_white_of_16_bits(samples, png_bits, tags))
    else:
        low, high = _declared_range(samples, image.mode, tags)
    if (low, high) == (0, 0xFFFF) and image.mode != "F":
        grey = (samples >> 8).astype(np.uint8)
    else:
        scaled = np.clip((samples.astype(np.float64) - low) * (255 / (high - low)), 0, 255)
        grey = np.rint(np.nan_to_num(scaled)).astype(np.uint8)
    # Pillow inverts WhiteIsZero only for 8 bits and fewer.
    return Image.fromarray(255 - grey if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO else grey)


def _white_of_16_bits(samples: npt.NDArray[Any], png_bits: int | None, tags: dict[int, Any]) -> int:
    if png_bits is not None:
        unscaled = samples.max(initial=0) < 1 << png_bits and (samples & ((1 << (16 - png_bits)) - 1)).any()
        return (1 << png_bits) - 1 if unscaled else 0xFFFF
    bits = _first(tags.get(_BITS_PER_SAMPLE), 16)
    declared = _first(tags.get(_MAX_SAMPLE), 0)
    if bits == 16 and declared > 0xFF and declared & (declared + 1) == 0:
        return int(declared)
    return (1 << int(bits)) - 1 if 8 < bits <= 16 else 0xFFFF


def _declared_range(samples: npt.NDArray[Any], mode: str, tags: dict[int, Any]) -> tuple[float, float]:
    low, high = _first(tags.get(_S_MIN_SAMPLE), None), _first(tags.get(_S_MAX_SAMPLE), None)
    if low is not None and high is not None and np.isfinite([low, high]).all() and low < high:
        return float(low), float(high)
    if mode == "F" and samples.size and 0 <= samples.min() <= samples.max() <= 1:
        return 0.0, 1.0
    kind = "floating-point samples beyond 0 to 1" if mode == "F" else "signed or 32-bit samples"
    raise ImageRejected(
        "unsupported", f"{kind}, and no tag (SMinSampleValue, SMaxSampleValue) says which are black and white"
    )


def _first(value: Any, default: Any) -> Any:
    if isinstance(value, tuple):
        value = value[0] if value else None
    return default if not isinstance(value, int | float) else value
