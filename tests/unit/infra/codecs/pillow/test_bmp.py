"""Every header, depth and bit mask of BMP against the colours that were written: right, or refused by name.

Run-length encoded ones are compared in ``infra/codecs/pillow/test_run_length_bmp.py``.
"""

from __future__ import annotations

import itertools
import struct

import numpy as np
import numpy.typing as npt
import pytest

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected

HEIGHT, WIDTH = 5, 11
HEADERS = (12, 40, 52, 56, 64, 108, 124)
UNMASKED = {16: (0x7C00, 0x3E0, 0x1F, 0), 32: (0xFF0000, 0xFF00, 0xFF, 0)}
# Masks of red, green, blue and opacity that are read; those of 16 bits have no opacity.
READ = {
    16: [(0xF800, 0x7E0, 0x1F, 0), (0x7C00, 0x3E0, 0x1F, 0)],
    32: [
        (0xFF0000, 0xFF00, 0xFF, 0),
        (0xFF0000, 0xFF00, 0xFF, 0xFF000000),
        (0xFF, 0xFF00, 0xFF0000, 0xFF000000),
    ],
}
UNREAD = {
    16: [(0x7C00, 0x3E0, 0x1F, 0x8000), (0xF00, 0xF0, 0xF, 0xF000), (0x1F, 0x7E0, 0xF800, 0)],
    32: [(0x3FF00000, 0xFFC00, 0x3FF, 0), (0x3FF00000, 0xFFC00, 0x3FF, 0xC0000000), (0xF800, 0x7E0, 0x1F, 0)],
}
Masks = tuple[int, int, int, int]


def bmp(
    header: int, bits: int, masks: Masks | None = None, top_down: bool = False, grey: bool = False
) -> tuple[bytes, npt.NDArray[np.float64]]:
    """A BMP, and its colours on white: [HEIGHT, WIDTH, 3]."""
    random = np.random.default_rng(bits)
    palette = b""
    if bits <= 8:
        colors = random.integers(0, 256, (1 << bits, 3)).astype(np.uint8)
        if grey:
            colors = np.linspace(0, 255, 1 << bits).round().astype(np.uint8)[:, None].repeat(3, 1)
        indexes = random.integers(0, 1 << bits, (HEIGHT, WIDTH)).astype(np.uint8)
        shown = colors[indexes].astype(np.float64)
        digits = np.unpackbits(indexes[:, :, None], axis=2)[:, :, 8 - bits :]
        rows = [np.packbits(row.reshape(-1)).tobytes() for row in digits]
        palette = b"".join(bytes(color[::-1]) + (b"" if header == 12 else b"\0") for color in colors)
    elif bits == 24:
        pixels = random.integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)
        shown, rows = pixels.astype(np.float64), [row[:, ::-1].tobytes() for row in pixels]
    else:
        values = random.integers(0, 1 << bits, (HEIGHT, WIDTH))
        *colors_, opacity = (channel(values, mask) for mask in masks or UNMASKED[bits])
        alpha = (opacity / 255)[:, :, None]
        shown = np.dstack(colors_) * alpha + 255 * (1 - alpha)
        rows = [row.astype(f"<u{bits // 8}").tobytes() for row in values]
    rows = [row + bytes(-len(row) % 4) for row in rows]
    content = b"".join(rows if top_down else rows[::-1])
    head = head_of(header, bits, masks, top_down, len(content))
    offset = 14 + len(head) + len(palette)
    return b"BM" + struct.pack("<IHHI", offset + len(content), 0, 0, offset) + head + palette + content, shown


def channel(values: npt.NDArray[np.int64], mask: int) -> npt.NDArray[np.float64]:
    if not mask:
        return np.full(values.shape, 255.0)
    low = mask & -mask
    return (values & mask) // low * 255 / (mask // low)


def head_of(header: int, bits: int, masks: Masks | None, top_down: bool, size: int) -> bytes:
    if header == 12:
        return struct.pack("<IHHHH", 12, WIDTH, HEIGHT, 1, bits)
    height = -HEIGHT if top_down else HEIGHT
    colors = 1 << bits if bits <= 8 else 0
    head = struct.pack(
        "<IiiHHIIiiII", header, WIDTH, height, 1, bits, 3 if masks else 0, size, 0, 0, colors, 0
    )
    if masks:
        head += struct.pack("<4I", *masks)[: 12 if header < 56 else 16]
    return head.ljust(header, b"\0") if header != 40 else head


PLAIN = [
    (header, bits, top_down, grey)
    for header, bits, top_down, grey in itertools.product(
        HEADERS, (1, 4, 8, 16, 24, 32), (False, True), (False, True)
    )
    if not (header == 12 and (bits in (16, 32) or top_down)) and not (grey and bits > 8)
]


@pytest.mark.parametrize(("header", "bits", "top_down", "grey"), PLAIN)
def test_every_header_and_depth(header: int, bits: int, top_down: bool, grey: bool) -> None:
    data, shown = bmp(header, bits, None, top_down, grey)
    assert np.abs(codecs.decode(data).pixels - shown).max() <= 1.01


@pytest.mark.parametrize("header", [40, 52, 56, 108, 124])
def test_bit_masks(header: int) -> None:
    for bits, masks in [(bits, masks) for bits, all_masks in READ.items() for masks in all_masks]:
        if not masks[3] or header >= 56:
            data, shown = bmp(header, bits, masks)
            assert np.abs(codecs.decode(data).pixels - shown).max() <= 1.01, hex(masks[0])
    for bits, masks in [(bits, masks) for bits, all_masks in UNREAD.items() for masks in all_masks]:
        if not masks[3] or header >= 56:
            with pytest.raises(ImageRejected) as caught:
                codecs.decode(bmp(header, bits, masks)[0])
            assert caught.value.reason == "unsupported", [hex(mask) for mask in masks]


@pytest.mark.parametrize("header", HEADERS)
def test_two_bits_are_unsupported(header: int) -> None:
    with pytest.raises(ImageRejected, match="2") as caught:
        codecs.decode(bmp(header, 2)[0])
    assert caught.value.reason == "unsupported"
