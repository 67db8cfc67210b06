"""Every type and depth of PNG, interlaced or not, opaque or not, against the colours that were written.

The files are written here, chunk by chunk: a library that both writes and reads would hide its errors.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterator

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected
from tests.samples.images.forms import png_chunk, rgb_profile

Samples = npt.NDArray[np.int64]

GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
DEPTHS = {GREY: (1, 2, 4, 8, 16), RGB: (8, 16), PALETTE: (1, 2, 4, 8), GREY_ALPHA: (8, 16), RGBA: (8, 16)}
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
HEIGHT, WIDTH = 9, 13
# Colour and opacity of 16 bits lose their low bytes, and then the composition is rounded.
TOLERANCE = {8: 1.01, 16: 2.01}


def packed(row: Samples, depth: int) -> bytes:
    if depth == 16:
        return row.astype(">u2").tobytes()
    bits = np.unpackbits(row.astype(np.uint8)[:, None], axis=1)[:, 8 - depth :]
    return np.packbits(bits.reshape(-1)).tobytes()


def image_data(samples: Samples, depth: int, interlaced: bool) -> bytes:
    rows = b""
    for left, top, across, down in PASSES if interlaced else ((0, 0, 1, 1),):
        part = samples[top::down, left::across]
        rows += b"".join(b"\x00" + packed(row.reshape(-1), depth) for row in part if row.size)
    return zlib.compress(rows)


def png(color: int, depth: int, samples: Samples, interlaced: bool = False, **chunks: bytes) -> bytes:
    """A PNG; chunks stand before its data, and those whose name ends with ``_late`` behind it."""
    header = struct.pack(">IIBBBBB", samples.shape[1], samples.shape[0], depth, color, 0, 0, interlaced)
    parts = [(name, content) for name, content in chunks.items() if not name.endswith("_late")]
    parts += [("IDAT", image_data(samples, depth, interlaced))]
    parts += [(name[:4], content) for name, content in chunks.items() if name.endswith("_late")]
    body = b"".join(png_chunk(name.encode(), content) for name, content in [("IHDR", header), *parts])
    return b"\x89PNG\r\n\x1a\n" + body + png_chunk(b"IEND", b"")


def cases() -> Iterator[tuple[int, int, bool, bool]]:
    for color, depths in DEPTHS.items():
        keyed = (False,) if color in (GREY_ALPHA, RGBA) else (False, True)
        yield from itertools.product((color,), depths, (False, True), keyed)


@pytest.mark.parametrize(("color", "depth", "interlaced", "keyed"), list(cases()))
def test_every_type_and_depth(color: int, depth: int, interlaced: bool, keyed: bool) -> None:
    random = np.random.default_rng(depth)
    samples = random.integers(0, 1 << depth, (HEIGHT, WIDTH, CHANNELS[color]))
    chunks = {}
    opacity = np.ones((HEIGHT, WIDTH))
    if color == PALETTE:
        palette = random.integers(0, 256, (1 << depth, 3))
        chunks["PLTE"] = palette.astype(np.uint8).tobytes()
        shades = palette[samples[:, :, 0]].astype(float)
        if keyed:  # an opacity for the first entries only
            opaque = np.full(1 << depth, 255)
            opaque[: len(opaque) // 2] = random.integers(0, 255, len(opaque) // 2)
            chunks["tRNS"] = opaque[: len(opaque) // 2].astype(np.uint8).tobytes()
            opacity = opaque[samples[:, :, 0]] / 255
    else:
        if keyed:
            key = samples[0, 0].copy()
            samples[2:4, 3:7] = key
            samples[5, 5], samples[5, 6] = key ^ 1, key ^ (1 << depth - 1)  # nearly the same colours
            chunks["tRNS"] = key.astype(">u2").tobytes()
            opacity = 1.0 - (samples == key).all(axis=2)
        shades = np.broadcast_to(samples[:, :, : 3 if color in (RGB, RGBA) else 1], (HEIGHT, WIDTH, 3))
        shades = shades * 255 / ((1 << depth) - 1)
        if color in (GREY_ALPHA, RGBA):
            opacity = samples[:, :, -1] / ((1 << depth) - 1)
    expected = shades * opacity[:, :, None] + 255 * (1 - opacity[:, :, None])
    decoded = codecs.decode(png(color, depth, samples, interlaced, **chunks))
    assert decoded.pixels.shape == (HEIGHT, WIDTH, 3)
    assert np.abs(decoded.pixels - expected).max() <= TOLERANCE[max(8, depth)]


RED_BLUE = np.tile(np.array([[[255, 0, 0], [0, 0, 255]]]), (4, 4, 1))
INDEXES = np.tile(np.array([[[0], [1]]]), (4, 4, 1))
COLORS = bytes((255, 0, 0, 0, 0, 255))
PROFILE = b"swapped\x00\x00" + zlib.compress(rgb_profile(swapped=True))
OUT_OF_PLACE = {
    "tRNS behind IDAT": png(RGB, 8, RED_BLUE, tRNS_late=bytes((0, 255, 0, 0, 0, 0))),
    "tRNS before PLTE": png(PALETTE, 8, INDEXES, tRNS=b"\x00", PLTE=COLORS),
    "tRNS longer than PLTE": png(PALETTE, 8, INDEXES, PLTE=COLORS, tRNS=bytes(3)),
    "tRNS of another type": png(RGB, 8, RED_BLUE, tRNS=b"\x00\xff"),
    "iCCP behind PLTE": png(PALETTE, 8, INDEXES, PLTE=COLORS, iCCP=PROFILE),
    "iCCP behind IDAT": png(RGB, 8, RED_BLUE, iCCP_late=PROFILE),
}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("data", OUT_OF_PLACE.values(), ids=OUT_OF_PLACE)
def test_chunks_out_of_place_are_not_applied(data: bytes) -> None:
    decoded = codecs.decode(data)
    assert (decoded.source.had_alpha, decoded.source.icc_profile) == (False, None)
    assert np.array_equal(decoded.pixels, RED_BLUE)
    assert np.array_equal(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB), RED_BLUE)


def test_chunks_in_their_place_are_applied() -> None:
    keyed = codecs.decode(png(RGB, 8, RED_BLUE, tRNS=bytes((0, 255, 0, 0, 0, 0))))
    assert keyed.source.had_alpha
    profiled = codecs.decode(png(PALETTE, 8, INDEXES, iCCP=PROFILE, PLTE=COLORS))
    assert profiled.source.icc_profile == "swapped primaries"


@pytest.mark.parametrize("name", ["IHDR", "PLTE"])
def test_two_headers_or_palettes_are_damage(name: str) -> None:
    header = struct.pack(">IIBBBBB", 2, 2, 8, PALETTE, 0, 0, 0)
    again = {"IHDR": {"IHDR": header}, "PLTE": {"PLTE_late": COLORS}}[name]
    with pytest.raises(ImageRejected, match=f"{name} twice") as caught:
        codecs.decode(png(PALETTE, 8, INDEXES, PLTE=COLORS, **again))
    assert caught.value.reason == "corrupt"
