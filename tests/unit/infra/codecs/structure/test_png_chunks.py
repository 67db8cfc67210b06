"""PNGs whose compressed data ends before their last row."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs.structure.png_chunks import read_png, rows_bytes
from tests.samples.images.forms import gradient, gradient_image, png_chunk, saved
from tests.samples.images.jpegs import noise

RGB, GREY = 2, 0


def png(size: tuple[int, int], rows: bytes, color: int = RGB, depth: int = 8, interlace: int = 0) -> bytes:
    """A PNG of this height and width around the bytes of its rows, which may be too few."""
    header = struct.pack(">IIBBBBB", size[1], size[0], depth, color, 0, 0, interlace)
    compressed = zlib.compress(rows)
    parts = [compressed[: len(compressed) // 2], compressed[len(compressed) // 2 :]]
    data = b"".join(png_chunk(b"IDAT", part) for part in parts)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + data + png_chunk(b"IEND", b"")


def rgb_rows(count: int, width: int = 40) -> bytes:
    content = np.random.default_rng(0).integers(1, 256, (count, 1 + 3 * width), dtype=np.uint8)
    content[:, 0] = 0  # the type of filter: none
    return content.tobytes()


@pytest.mark.parametrize("count", [1, 100, 199])
def test_missing_rows_are_truncated_and_salvaged(count: int) -> None:
    data = png((200, 40), rgb_rows(count))
    with pytest.raises(ImageRejected, match="rows are missing") as caught:
        codecs.decode(data)
    assert caught.value.reason == "truncated"
    salvaged = codecs.decode(data, allow_truncated=True)
    assert salvaged.source.salvaged
    assert salvaged.pixels[:count].all()
    assert not salvaged.pixels[count:].any()


def test_a_last_row_that_lacks_its_end_is_truncated() -> None:
    with pytest.raises(ImageRejected) as caught:
        codecs.decode(png((200, 40), rgb_rows(200)[:-1]))
    assert caught.value.reason == "truncated"


def test_a_small_file_that_announces_a_large_picture_is_refused_before_it_is_decoded() -> None:
    data = png((13_300, 13_300), rgb_rows(1))
    with pytest.raises(ImageRejected, match="most rows are missing") as caught:
        codecs.decode(data)
    assert caught.value.reason == "truncated"


@pytest.mark.parametrize("count", [200, 201])
def test_whole_pictures_are_taken(count: int) -> None:
    decoded = codecs.decode(png((200, 40), rgb_rows(count)))
    assert (decoded.source.salvaged, decoded.pixels.shape) == (False, (200, 40, 3))


@pytest.mark.parametrize("black_rows", [1, 50, 200])
def test_black_rows_are_no_missing_rows(black_rows: int) -> None:
    pixels = noise(200, 40)
    pixels[-black_rows:] = 0
    decoded = codecs.decode(png((200, 40), b"".join(b"\x00" + row.tobytes() for row in pixels)))
    assert np.array_equal(decoded.pixels, pixels)


def test_transparent_and_palette_pictures_that_end_in_zeros() -> None:
    clear = Image.new("RGBA", (40, 30), (0, 0, 0, 0))
    indexed = Image.fromarray(np.zeros((30, 40), np.uint8)).convert("P")
    for image in (clear, indexed, indexed.convert("1")):
        assert codecs.decode(saved(image, "PNG")).pixels.shape == (30, 40, 3)


# Adam7: first column and row, and the steps between columns and rows, of each pass.
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def interlaced_rows(pixels: codecs.Pixels) -> bytes:
    rows = b""
    for left, top, across, down in PASSES:
        part = pixels[top::down, left::across]
        if part.size:
            rows += b"".join(b"\x00" + row.tobytes() for row in part)
    return rows


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (2, 3), (8, 8), (9, 9), (16, 5)])
def test_interlaced_pictures(size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(0).integers(1, 256, (*size, 1), dtype=np.uint8)
    rows = interlaced_rows(pixels)
    data = png(size, rows, GREY, interlace=1)
    assert rows_bytes(read_png(data)) == len(rows)
    assert np.array_equal(codecs.decode(data, 1).pixels, pixels)
    for end in (1, len(rows) // 2, len(rows) - 1):
        with pytest.raises(ImageRejected) as caught:
            codecs.decode(png(size, rows[:end], GREY, interlace=1))
        assert caught.value.reason == "truncated"


@pytest.mark.parametrize(
    ("color", "depth", "samples"), [(0, 1, 1), (3, 4, 1), (4, 8, 2), (6, 16, 4), (2, 16, 3)]
)
def test_the_size_of_rows(color: int, depth: int, samples: int) -> None:
    file = read_png(png((5, 9), b"", color, depth))
    assert rows_bytes(file) == 5 * (1 + -(-9 * samples * depth // 8))


def test_no_flipped_bit_changes_pixels_unnoticed() -> None:
    data = saved(gradient_image(), "PNG")
    start, size = data.index(b"IDAT") + 4, int.from_bytes(data[data.index(b"IDAT") - 4 :][:4], "big")
    for position in range(start, start + size):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        assert changed_pixels(bytes(damaged)) == 0, position


def changed_pixels(data: bytes) -> int:
    """Number of samples that differ from the picture's; 0 if the file is refused."""
    try:
        return int(np.count_nonzero(codecs.decode(data).pixels != gradient()))
    except ImageRejected:
        return 0


def test_a_wrong_checksum_of_sound_data_is_no_damage() -> None:
    data = saved(gradient_image(), "PNG")
    end = data.index(b"IEND") - 4
    wrong = data[: end - 4] + b"\x00\x00\x00\x00" + data[end:]
    assert wrong != data
    assert np.array_equal(codecs.decode(wrong).pixels, gradient())
