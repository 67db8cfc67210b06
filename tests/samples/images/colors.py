"""Colours by the formulas of the standards, in float64, and files that state them.

The formulas are written here a second time, from ITU-T H.273, ITU-R BT.2100, BT.2390 and BT.2408, IEC
61966-2-1 and the PNG specification, and share no code with ``shardmill.infra.codecs.color``.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from tests.samples.images.forms import png_chunk

Floats = npt.NDArray[np.float64]
Curve = Callable[[Floats], Floats]

D65, D50 = (0.3127, 0.3290), (0.3457, 0.3585)
SRGB = (*D65, 0.64, 0.33, 0.30, 0.60, 0.15, 0.06)
P3 = (*D65, 0.68, 0.32, 0.265, 0.69, 0.15, 0.06)
BT2020 = (*D65, 0.708, 0.292, 0.170, 0.797, 0.131, 0.046)
ADOBE_RGB = (*D65, 0.64, 0.33, 0.21, 0.71, 0.15, 0.06)
SMPTE_C = (*D65, 0.63, 0.34, 0.31, 0.595, 0.155, 0.07)
EBU = (*D65, 0.64, 0.33, 0.29, 0.60, 0.15, 0.06)
DCI = (0.314, 0.351, 0.68, 0.32, 0.265, 0.69, 0.15, 0.06)
FILM = (0.31, 0.316, 0.681, 0.319, 0.243, 0.692, 0.145, 0.049)


def srgb_curve(signal: Floats) -> Floats:
    """Light of a signal (IEC 61966-2-1)."""
    return np.where(signal <= 0.04045, signal / 12.92, ((signal + 0.055) / 1.055) ** 2.4)


def power(exponent: float) -> Curve:
    """A curve that is a pure power."""
    return lambda signal: signal**exponent


def smpte_240m(signal: Floats) -> Floats:
    """Light of a signal (H.273, curve 7)."""
    return np.where(signal < 4 * 0.0228, signal / 4, ((signal + 0.1115) / 1.1115) ** (1 / 0.45))


def logarithmic(signal: Floats) -> Floats:
    """Light of a signal (H.273, curve 9)."""
    return np.where(signal > 0, 10 ** (2 * (signal - 1)), 0.0)


def pq(signal: Floats) -> Floats:
    """Light on a display (cd/m²) of a signal of PQ (BT.2100, table 4)."""
    root = signal ** (32 / 2523)
    share = np.maximum(root - 3424 / 4096, 0) / (2413 / 128 - 2392 / 128 * root)
    return 10_000 * share ** (16384 / 2610)


def _inverse_pq(nits: Floats) -> Floats:
    root = (nits / 10_000) ** (2610 / 16384)
    return ((3424 / 4096 + 2413 / 128 * root) / (1 + 2392 / 128 * root)) ** (2523 / 32)


def hlg(signal: Floats) -> Floats:
    """Light on a display of 1,000 cd/m² of BT.2020 signals of HLG (BT.2100, table 5), [..., 3]."""
    a = 0.17883277
    b, c = 1 - 4 * a, 0.5 - a * np.log(4 * a)
    scene = np.where(signal <= 0.5, signal**2 / 3, (np.exp((signal - c) / a) + b) / 12)
    luminance = scene @ np.array([0.2627, 0.6780, 0.0593])
    return 1000 * luminance[..., None] ** 0.2 * scene


def tone_mapped(nits: Floats) -> Floats:
    """Light, 1 for the white of an SDR display (203 cd/m²), by BT.2390 (5.4.1) from 1,000 cd/m², [..., 3]."""
    out = np.zeros_like(nits)
    for place in np.ndindex(nits.shape[:-1]):
        largest = float(nits[place].max())
        if largest <= 0:
            continue
        peak = float(_inverse_pq(np.array(1000.0)))
        e1 = min(float(_inverse_pq(np.array(largest))) / peak, 1.0)
        most = float(_inverse_pq(np.array(203.0))) / peak
        knee = 1.5 * most - 0.5
        e2 = e1
        if e1 >= knee:
            t = (e1 - knee) / (1 - knee)
            e2 = (2 * t**3 - 3 * t**2 + 1) * knee + (t**3 - 2 * t**2 + t) * (1 - knee)
            e2 += (-2 * t**3 + 3 * t**2) * most
        mapped = float(pq(np.array(e2 * peak))) if e1 >= knee else largest
        out[place] = nits[place] * mapped / largest / 203
    return out


def _xyz_of_rgb(primaries: Sequence[float]) -> Floats:
    x, y = np.array(primaries[0::2]), np.array(primaries[1::2])
    corners = np.array([x[1:], y[1:], 1 - x[1:] - y[1:]])
    white = np.array([x[0] / y[0], 1, (1 - x[0] - y[0]) / y[0]])
    return corners * (np.linalg.inv(corners) @ white)


def to_srgb(linear: Floats, primaries: Sequence[float]) -> Floats:
    """Samples of sRGB, 0 to 255, of light under primaries; the white becomes white (Bradford), [..., 3]."""
    bradford = np.array([[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]])
    matrix, wanted = _xyz_of_rgb(primaries), _xyz_of_rgb(SRGB)
    scale = (bradford @ wanted.sum(axis=1)) / (bradford @ matrix.sum(axis=1))
    adapted = np.linalg.inv(bradford) @ np.diag(scale) @ bradford @ matrix
    light = np.clip(linear @ (np.linalg.inv(wanted) @ adapted).T, 0, 1)
    return 255 * np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)


def shown(signal: Floats, primaries: Sequence[float], curve: Curve) -> Floats:
    """Samples of sRGB, 0 to 255, of a signal, 0 to 1, [..., 3]."""
    light = curve(signal)
    return to_srgb(tone_mapped(light) if curve in (pq, hlg) else light, primaries)


def with_chunks(png: bytes, **chunks: bytes) -> bytes:
    """A PNG with further chunks behind its header."""
    more = b"".join(png_chunk(name.encode(), content) for name, content in chunks.items())
    return png[:33] + more + png[33:]


def chrm(primaries: Sequence[float]) -> bytes:
    """The content of a chunk cHRM."""
    return struct.pack(">8I", *(round(value * 100_000) for value in primaries))


def gama(gamma: float) -> bytes:
    """The content of a chunk gAMA."""
    return struct.pack(">I", round(gamma * 100_000))


def lut_profile(space: bytes, num_channels: int, lab: Callable[[Floats], Floats], version: int) -> bytes:
    """An ICC profile of a table (ICC.1:2022, 10.10), from samples [N, channels], 0 to 1, to CIE L*a*b*."""
    points = 9 if num_channels < 4 else 5
    axes = np.meshgrid(*[np.linspace(0, 1, points)] * num_channels, indexing="ij")
    values = lab(np.stack(axes, axis=-1).reshape(-1, num_channels))
    coded = np.clip((values + np.array([0, 128, 128])) * [652.8, 256, 256], 0, 65535).round().astype(">u2")
    ramp = struct.pack(">2H", 0, 65535)
    matrix = struct.pack(">9i", *(65536 if at % 4 == 0 else 0 for at in range(9)))
    table = b"mft2" + bytes(4) + bytes([num_channels, 3, points, 0]) + matrix + struct.pack(">2H", 2, 2)
    table += ramp * num_channels + coded.tobytes() + ramp * 3
    white = b"XYZ " + bytes(4) + struct.pack(">3i", 63190, 65536, 54061)
    name = b"desc" + bytes(4) + struct.pack(">I", 6) + b"table\x00" + bytes(78)
    tags = {b"desc": name, b"wtpt": white, b"A2B0": table + bytes(-len(table) % 4)}
    at, head, body = 132 + 12 * len(tags), b"", b""
    for tag, content in tags.items():
        head += tag + struct.pack(">II", at + len(body), len(content))
        body += content
    kind = b"prtr" if space == b"CMYK" else b"scnr"
    begin = struct.pack(">I", at + len(body)) + bytes(4) + bytes([version, 0, 0, 0]) + kind + space + b"Lab "
    begin += bytes(12) + b"acsp" + bytes(28) + white[8:]
    return begin + bytes(128 - len(begin)) + struct.pack(">I", len(tags)) + head + body


# From linear sRGB to CIE XYZ under D50.
_TO_D50 = np.array([
    [0.4360747, 0.3850649, 0.1430804], [0.2225045, 0.7168786, 0.0606169], [0.0139322, 0.0971045, 0.7141733],
])  # fmt: skip


def srgb_of_lab(lab: Floats) -> Floats:
    """Samples of sRGB, 0 to 255, of CIE L*a*b* under D50, [N, 3]."""
    fy = (lab[:, 0] + 16) / 116
    f = np.stack([fy + lab[:, 1] / 500, fy, fy - lab[:, 2] / 200], axis=1)
    share = np.where(f > 6 / 29, f**3, 3 * (6 / 29) ** 2 * (f - 4 / 29))
    return to_srgb((share * _TO_D50.sum(axis=1)) @ np.linalg.inv(_TO_D50).T, SRGB)


def lab_of_srgb(signal: Floats) -> Floats:
    """CIE L*a*b* under D50 of samples of sRGB, 0 to 1, [N, 3]."""
    share = (srgb_curve(signal) @ _TO_D50.T) / _TO_D50.sum(axis=1)
    f = np.where(share > (6 / 29) ** 3, np.cbrt(share), share / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


def saved(samples: npt.NDArray[Any], kind: str = "PNG", **options: Any) -> bytes:
    """The file that Pillow writes of 8 bits."""
    stream = io.BytesIO()
    Image.fromarray(samples).save(stream, kind, **options)
    return stream.getvalue()
