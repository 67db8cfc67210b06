"""Colours that a file states without an ICC profile: by code points, or by primaries and a gamma.

PNG has code points (ITU-T H.273) in its chunk cICP, AVIF and HEIF in a box colr of type nclx (ISO/IEC
23008-12, 6.5.5). PNG also has cHRM (primaries) and gAMA (the curve). Reserved code points count as
unspecified, as the video standards ask for; unspecified primaries or curves are those of sRGB.

- Curves 1, 6, 11, 12, 14 and 15, made for cameras of BT.709 and its kin, are shown with the curve of sRGB by
  viewers of still images, and so they are here.
- A gAMA within 5 % of 1/2.2 means the curve of sRGB, unless cHRM has other primaries: libpng and the browsers
  that use it take 5 % for no difference, and programs write 0.45455 beside pictures in sRGB. Any other gAMA
  is a pure power, as the PNG specification says.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

_D65, _C = (0.3127, 0.3290), (0.310, 0.316)
SRGB: Final = (*_D65, 0.640, 0.330, 0.300, 0.600, 0.150, 0.060)
_SMPTE_C: Final = (*_D65, 0.630, 0.340, 0.310, 0.595, 0.155, 0.070)
# ColourPrimaries (H.273, table 2): name; x and y of white, red, green and blue.
_PRIMARIES: Final[dict[int, tuple[str, tuple[float, ...]]]] = {
    1: ("BT.709", SRGB),
    4: ("NTSC 1953", (*_C, 0.67, 0.33, 0.21, 0.71, 0.14, 0.08)),
    5: ("BT.601 of 625 lines", (*_D65, 0.64, 0.33, 0.29, 0.60, 0.15, 0.06)),
    6: ("BT.601 of 525 lines", _SMPTE_C),
    7: ("SMPTE 240M", _SMPTE_C),
    8: ("generic film", (*_C, 0.681, 0.319, 0.243, 0.692, 0.145, 0.049)),
    9: ("BT.2020", (*_D65, 0.708, 0.292, 0.170, 0.797, 0.131, 0.046)),
    10: ("CIE XYZ", (1 / 3, 1 / 3, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0)),
    11: ("DCI-P3", (0.314, 0.351, 0.680, 0.320, 0.265, 0.690, 0.150, 0.060)),
    12: ("Display P3", (*_D65, 0.680, 0.320, 0.265, 0.690, 0.150, 0.060)),
    22: ("EBU Tech 3213", (*_D65, 0.630, 0.340, 0.295, 0.605, 0.155, 0.077)),
}
# TransferCharacteristics (table 3). Those that are read as the curve of sRGB have no name of their own.
UNSPECIFIED, SRGB_CURVE, PQ, HLG = 2, 13, 16, 18
_LIKE_SRGB = frozenset({1, 6, 11, 12, SRGB_CURVE, 14, 15})
_GAMMAS = {4: 2.2, 5: 2.8, 8: 1.0}
_CURVES = {
    4: "gamma 2.2", 5: "gamma 2.8", 7: "SMPTE 240M", 8: "linear", 9: "logarithmic", 10: "logarithmic",
    PQ: "PQ", 17: "SMPTE ST 428-1", HLG: "HLG",
}  # fmt: skip
_LOG_RANGES = {9: 2.0, 10: 2.5}  # decades
SAME_GAMMA = 0.05  # PNG_GAMMA_THRESHOLD of libpng
SAME_CHROMATICITY = 0.005
_MOST_TAGS = 200  # of a profile
_LEAST_GAMMA, _LARGEST_GAMMA = 0.1, 10.0


@dataclass(frozen=True, slots=True)
class Stated:
    """Colours by primaries and a curve.

    Attributes:
        name: what records call them, and in brackets where the file states them: "Display P3 (cICP)".
        primaries: x and y (CIE 1931) of white, red, green and blue.
        curve: TransferCharacteristics of H.273; those that are like sRGB are SRGB_CURVE.
        gamma: exponent of a pure power, in place of ``curve``; 0 for none.
        narrow_bits: bits a sample, where samples have the narrow range of video: black is 16 and white 235 on
            the scale of 8 bits. 0 for the full range.
    """

    name: str
    primaries: tuple[float, ...] = SRGB
    curve: int = SRGB_CURVE
    gamma: float = 0.0
    narrow_bits: int = 0

    @property
    def is_hdr(self) -> bool:
        """Tell whether colours may be brighter than white."""
        return self.curve in (PQ, HLG)

    @property
    def has_srgb_curve(self) -> bool:
        """Tell whether the samples follow the curve of sRGB, over their full range."""
        return self.curve == SRGB_CURVE and not self.gamma and not self.narrow_bits

    @property
    def is_srgb(self) -> bool:
        """Tell whether these are the colours of sRGB."""
        return self.primaries == SRGB and self.has_srgb_curve

    def signal(self, levels: Values) -> Values:
        """Return samples on the scale from black, 0, to white, 1.

        Args:
            levels: samples, divided by the largest number of their bits.
        """
        if not self.narrow_bits:
            return levels
        unit = 1 << (self.narrow_bits - 8)
        return np.clip((levels * ((1 << self.narrow_bits) - 1) / unit - 16) / 219, 0.0, 1.0)

    def linear(self, levels: Values) -> Values:
        """Return the light, 0 to 1, of samples, 0 to 1. Not for HDR."""
        signal = self.signal(levels)
        if gamma := self.gamma or _GAMMAS.get(self.curve, 0.0):
            return signal**gamma
        if self.curve in _LOG_RANGES:
            return np.where(signal > 0, 10 ** (_LOG_RANGES[self.curve] * (signal - 1)), 0.0)
        if self.curve == 17:  # 48 cd/m² of 52.37 are white
            return np.clip(52.37 / 48 * signal**2.6, 0.0, 1.0)
        if self.curve == 7:
            return np.where(signal < 0.0912, signal / 4, ((signal + 0.1115) / 1.1115) ** (1 / 0.45))
        return np.where(signal <= 0.04045, signal / 12.92, ((signal + 0.055) / 1.055) ** 2.4)

    def to_xyz(self, white: tuple[float, float]) -> Values:
        """Return the matrix [3, 3] from linear RGB to CIE XYZ, adapted to a white (x, y) as Bradford does."""
        found = _to_xyz(self.primaries)
        bradford = np.array(
            [[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]], np.float64
        )
        cones = bradford @ np.stack([_xyz(*white), _xyz(*self.primaries[:2])], axis=1)
        adapted: Values = np.linalg.inv(bradford) @ np.diag(cones[:, 0] / cones[:, 1]) @ bradford @ found
        return adapted

    def to_srgb(self) -> Values:
        """Return the matrix [3, 3] from linear RGB to linear sRGB."""
        matrix: Values = np.linalg.inv(_to_xyz(SRGB)) @ self.to_xyz(_D65)
        return matrix


def _xyz(x: float, y: float) -> Values:
    return np.array([x / y, 1.0, (1 - x - y) / y])


def _to_xyz(primaries: tuple[float, ...]) -> Values:
    white, corners = _xyz(*primaries[:2]), np.reshape(primaries[2:], (3, 2)).T
    directions = np.vstack([corners, 1 - corners.sum(axis=0)])
    found: Values = directions * np.linalg.solve(directions, white)
    return found


# An ICC profile, colours that are stated otherwise, or what is wrong with a statement, which does not count.
Statement = bytes | Stated | str


def of_codes(content: bytes | None, bits: int, source: str = "cICP") -> tuple[Statement, ...]:
    """Return what a chunk cICP states; nothing if there is none.

    Args:
        content: of the chunk, or None.
        bits: bits of a sample.
        source: where the file states it, in the words of records.
    """
    if content is None:
        return ()
    if len(content) != 4 or content[2] != 0 or content[3] > 1:
        return (f"{source} not sound",)
    return _of_codes(source, content[0], content[1], 0 if content[3] else max(bits, 8))


def of_nclx(content: bytes | None) -> tuple[Statement, ...]:
    """Return what a box colr states whose content begins with "nclx"; nothing if there is none.

    Its matrix and range win over those in the picture; the decoder applies them.
    """
    if content is None:
        return ()
    if len(content) < 11:
        return ("nclx not sound",)
    return _of_codes("nclx", int.from_bytes(content[4:6], "big"), int.from_bytes(content[6:8], "big"), 0)


def hdr_of_profile(icc: bytes) -> Stated | None:
    """Return the HDR colours that an ICC profile states by its tag cicp (ICC.1:2022, 9.2.17), or None."""
    for at in range(132, 132 + 12 * min(int.from_bytes(icc[128:132], "big"), _MOST_TAGS), 12):
        if icc[at : at + 4] == b"cicp":
            place = int.from_bytes(icc[at + 4 : at + 8], "big") + 8
            found = of_codes(icc[place : place + 4], 8, "ICC profile")
            return next((one for one in found if isinstance(one, Stated) and one.is_hdr), None)
    return None


@functools.lru_cache(maxsize=64)
def _of_codes(source: str, primaries: int, curve: int, narrow_bits: int) -> tuple[Statement, ...]:
    reserved = []
    if primaries not in _PRIMARIES and primaries != UNSPECIFIED:
        reserved.append(f"primaries {primaries}")
    if curve not in _LIKE_SRGB and curve not in _CURVES and curve != UNSPECIFIED:
        reserved.append(f"curve {curve}")
    found: list[Statement] = [f"{source} with reserved {' and '.join(reserved)}"] if reserved else []
    if primaries in _PRIMARIES or curve in _CURVES or curve in _LIKE_SRGB or narrow_bits:
        name, corners = _PRIMARIES.get(primaries, _PRIMARIES[1])
        shape = " " + _CURVES[curve] if curve in _CURVES else " of narrow range" if narrow_bits else ""
        code = curve if curve in _CURVES else SRGB_CURVE
        found.append(Stated(f"{name}{shape} ({source})", corners, code, narrow_bits=narrow_bits))
    return tuple(found)


def of_gamma(gama: bytes | None, chrm: bytes | None) -> tuple[Statement, ...]:
    """Return what the chunks gAMA and cHRM of a PNG state; each is None if there is none."""
    if gama is None and chrm is None:
        return ()
    found: list[Statement] = []
    gamma, primaries, names = 0.0, SRGB, []
    if gama is not None:
        value = int.from_bytes(gama, "big") / 100_000 if len(gama) == 4 else 0.0
        if _LEAST_GAMMA <= value <= _LARGEST_GAMMA:
            gamma, names = 1 / value, [f"gAMA {value:.5f}"]
        else:
            found.append("gAMA not sound")
    if chrm is not None:
        corners = tuple((np.frombuffer(chrm, ">u4") / 100_000).tolist()) if len(chrm) == 32 else ()
        if not _is_sound(corners):
            found.append("cHRM not sound")
        elif max(abs(one - other) for one, other in zip(corners, SRGB, strict=True)) > SAME_CHROMATICITY:
            primaries = corners
            names.append("cHRM")
    if primaries == SRGB and abs(2.2 / gamma - 1 if gamma else 0.0) <= SAME_GAMMA:
        gamma, names = 0.0, []
    return (*found, Stated(" and ".join(names) or "sRGB", primaries, gamma=gamma))


def _is_sound(corners: tuple[float, ...]) -> bool:
    """Tell whether chromaticities span a triangle around a white."""
    if len(corners) != 8 or not corners[1]:
        return False
    points = np.reshape(corners, (4, 2))
    if points.sum(axis=1).max() > 1.0001:
        return False
    try:
        shares = np.linalg.solve(np.vstack([points[1:].T, np.ones(3)]), np.array([*points[0], 1.0]))
    except np.linalg.LinAlgError:
        return False
    return bool((shares > 1e-3).all())


def srgb_of(light: npt.NDArray[Any], dtype: type[np.uint8 | np.uint16]) -> npt.NDArray[Any]:
    """Return samples of a type, from 0 to its largest, of linear sRGB, 0 to 1; values beyond are cut."""
    light = np.clip(light, 0.0, 1.0)
    curved = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    rounded: npt.NDArray[Any] = np.rint(np.iinfo(dtype).max * curved).astype(dtype)
    return rounded
