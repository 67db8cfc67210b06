"""Bring HDR pictures to sRGB by a tone mapping.

1. The light of each pixel (cd/m²): by the EOTF of PQ, or by the inverse OETF and the OOTF of HLG for a
   display of 1,000 cd/m², system gamma 1.2 (ITU-R BT.2100-2, tables 4 and 5).
2. The largest of red, green and blue is mapped by the EETF of ITU-R BT.2390 (5.4.1), from a display of
   1,000 cd/m² to one of 203, the reference white of ITU-R BT.2408. Brighter light is cut. The three keep
   their ratios, so hues stay. Below 92 cd/m² nothing changes.
3. Light of 203 cd/m² is white; primaries and curve become those of sRGB, and colours beyond it are cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from PIL import Image

from shardmill.infra.codecs.color.stated import HLG, Stated, Values, srgb_of
from shardmill.infra.codecs.formats import band_rows

PEAK, WHITE = 1000.0, 203.0  # cd/m²
_M1, _M2, _C1, _C2, _C3 = 2610 / 16384, 2523 / 32, 3424 / 4096, 2413 / 128, 2392 / 128
_A, _B, _C = 0.17883277, 0.28466892, 0.55991073
_EXTRA_GAMMA = 0.2


@dataclass(frozen=True, slots=True)
class ToneMapping:
    """The conversion of HDR colours to sRGB.

    Attributes:
        stated: the colours; ``is_hdr`` is true.
    """

    stated: Stated

    @property
    def description(self) -> str:
        """What records say of the conversion."""
        return f"{self.stated.name}, tone-mapped"

    def apply(self, image: Image.Image) -> Image.Image:
        """Convert an image of mode "L" or "RGB" to the same mode in sRGB."""
        return Image.fromarray(self.to_samples(np.asarray(image), np.uint8))

    def to_samples(
        self, samples: npt.NDArray[np.uint8 | np.uint16], dtype: type[np.uint8 | np.uint16]
    ) -> npt.NDArray[Any]:
        """Convert samples, [H, W] or [H, W, 3], to sRGB of the same shape and the type ``dtype``."""
        num_levels = np.iinfo(samples.dtype).max + 1
        light = self._light(np.linspace(0.0, 1.0, num_levels)).astype(np.float32)
        colors = samples.reshape(*samples.shape[:2], -1)
        out = np.empty(colors.shape, dtype)
        matrix = self.stated.to_srgb().astype(np.float32)
        rows = band_rows(colors[0].size)
        for start in range(0, len(colors), rows):
            scene = light[colors[start : start + rows]]
            shown = tone_mapped(self._on_display(scene)) / np.float32(WHITE)
            out[start : start + rows] = srgb_of(shown if shown.shape[2] == 1 else shown @ matrix.T, dtype)
        return out[:, :, 0] if samples.ndim == 2 else out

    def _light(self, levels: Values) -> Values:
        """Return the light of samples: for PQ on the display (cd/m²), for HLG in the scene (0 to 1)."""
        signal = self.stated.signal(levels)
        if self.stated.curve != HLG:
            return cast(Values, nits_of_pq(signal))
        return np.where(signal <= 0.5, signal**2 / 3, (np.exp((signal - _C) / _A) + _B) / 12)

    def _on_display(self, light: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        if self.stated.curve != HLG:
            return light
        weights = self.stated.to_xyz(self.stated.primaries[:2])[1].astype(np.float32)  # type: ignore[arg-type]
        luminance = light if light.shape[2] == 1 else (light @ weights)[:, :, np.newaxis]
        return np.float32(PEAK) * light * np.maximum(luminance, 0) ** np.float32(_EXTRA_GAMMA)


def nits_of_pq(signal: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the light (cd/m²) of signals of PQ, 0 to 1."""
    power = signal ** (1 / _M2)
    return 10_000 * (np.maximum(power - _C1, 0) / (_C2 - _C3 * power)) ** (1 / _M1)


def pq_of_nits(nits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the signal of PQ, 0 to 1, of light (cd/m²)."""
    power = (nits / 10_000) ** _M1
    return ((_C1 + _C2 * power) / (1 + _C3 * power)) ** _M2


def tone_mapped(nits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Map light of 0 to 1,000 cd/m² to 0 to 203.

    Args:
        nits: [H, W, C]; the same factor applies to the channels of a pixel.
    """
    peak = nits.max(axis=2, keepdims=True)
    top = pq_of_nits(np.array([PEAK, WHITE], np.float32))
    source, most = pq_of_nits(np.minimum(peak, PEAK)) / top[0], top[1] / top[0]
    knee = 1.5 * most - 0.5
    t = np.maximum((source - knee) / (1 - knee), 0)
    curved = (
        (2 * t**3 - 3 * t**2 + 1) * knee + (t**3 - 2 * t**2 + t) * (1 - knee) + (3 * t**2 - 2 * t**3) * most
    )
    mapped = nits_of_pq(curved * top[0])
    factor = np.where(source < knee, 1.0, mapped / np.maximum(peak, 1e-6))
    return cast(npt.NDArray[np.float32], (nits * factor).astype(np.float32))
