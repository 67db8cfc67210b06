"""Single images in every form that the codecs' tests need."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from shardmill.infra.codecs import Pixels


def gradient(height: int = 48, width: int = 64) -> Pixels:
    """uint8 [H, W, 3]: a gradient with one dark corner, so that every orientation looks different."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = (255 * x / width, 255 * y / height, 255 * (x + y) / (width + height))
    pixels = np.stack(planes, axis=-1).astype(np.uint8)
    pixels[: height // 4, : width // 4] = 10
    return pixels


def gradient_image(**options: Any) -> Image.Image:
    """The same as a picture of Pillow's."""
    return Image.fromarray(gradient(**options))


def saved(image: Image.Image, format_: str, **options: Any) -> bytes:
    """The file that Pillow writes."""
    stream = io.BytesIO()
    image.save(stream, format_, **options)
    return stream.getvalue()


def png_chunk(name: bytes, content: bytes) -> bytes:
    """A chunk of a PNG file."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def rgb_profile(swapped: bool, gamma: float = 1.8, more: Mapping[bytes, bytes] | None = None) -> bytes:
    """An ICC profile of matrix and gamma; ``swapped`` exchanges the primaries red and green."""
    primaries = [(0.4361, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7141)]
    if swapped:
        primaries[:2] = primaries[1::-1]
    names = (b"rXYZ", b"gXYZ", b"bXYZ")
    tags = {name: _xyz(*primary) for name, primary in zip(names, primaries, strict=True)}
    tags |= dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), _gamma(gamma))
    return _profile(b"RGB ", "swapped primaries" if swapped else "plain", {**tags, **(more or {})})


def display_p3_profile() -> bytes:
    """The numbers of Apple's profile of Display P3: primaries under D50, the curve of sRGB as a formula."""
    primaries = ((0.51512, 0.2412, -0.00105), (0.29198, 0.69225, 0.04189), (0.1571, 0.06657, 0.78407))
    formula = (2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)
    curve = b"para\0\0\0\0\0\3\0\0" + struct.pack(">5i", *(round(value * 65536) for value in formula))
    names = (b"rXYZ", b"gXYZ", b"bXYZ")
    tags = {name: _xyz(*primary) for name, primary in zip(names, primaries, strict=True)}
    tags |= dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), curve)
    return _profile(b"RGB ", "Display P3", tags)


def grey_profile(gamma: float) -> bytes:
    """An ICC profile for grey."""
    return _profile(b"GRAY", f"grey of gamma {gamma}", {b"kTRC": _gamma(gamma)})


def _xyz(*values: float) -> bytes:
    return b"XYZ \x00\x00\x00\x00" + struct.pack(">3i", *(round(value * 65536) for value in values))


def _gamma(gamma: float) -> bytes:
    return b"curv\x00\x00\x00\x00\x00\x00\x00\x01" + struct.pack(">H", round(gamma * 256)) + b"\x00\x00"


def _profile(space: bytes, description: str, tags: Mapping[bytes, bytes]) -> bytes:
    """A version 2 profile (ICC.1:2001-04) with the white point that all have (D50)."""
    text = description.encode() + b"\x00"
    desc = b"desc\x00\x00\x00\x00" + struct.pack(">I", len(text)) + text + bytes(78)
    everything = {b"desc": desc + bytes(-len(desc) % 4), b"wtpt": _xyz(0.9642, 1.0, 0.8249), **tags}
    start = 132 + 12 * len(everything)
    table, body = b"", b""
    for name, content in everything.items():
        table += name + struct.pack(">II", start + len(body), len(content))
        body += content
    size = struct.pack(">I", start + len(body))
    header = size + bytes(4) + b"\x02\x10\x00\x00mntr" + space + b"XYZ " + bytes(12) + b"acsp" + bytes(28)
    header += struct.pack(">3i", 63190, 65536, 54061)
    return header + bytes(128 - len(header)) + struct.pack(">I", len(everything)) + table + body
