"""Masks are read as numbers, whatever the file; they follow their images, and are stored without loss."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardmill.beam_jobs.config import ImageConfig
from shardmill.infra.codecs import MAX_PIXELS, ImageRejected
from shardmill.infra.codecs.geometry import geometry
from shardmill.infra.codecs.masks import (
    ClassValues,
    class_numbers,
    classes_shown,
    decode_mask,
    decode_stored_mask,
    encode_mask,
    fit_mask,
)
from tests.samples.images.forms import png_chunk, saved
from tests.samples.images.mutants import mutant

PALETTE = [0, 0, 0, 128, 0, 0, 0, 128, 0, 128, 128, 0]


def painted(height: int = 11, width: int = 13, values: int = 3) -> np.ndarray:
    """uint8 [H, W] of the numbers 0 to ``values`` - 1 in no pattern."""
    return np.random.default_rng(height * width).integers(0, values, (height, width)).astype(np.uint8)


def with_palette(numbers: np.ndarray) -> Image.Image:
    image = Image.fromarray(numbers)
    image = image.copy()
    image.putpalette(PALETTE)
    return image


def png_of_bits(numbers: np.ndarray, bits: int) -> bytes:
    """A grey PNG with fewer than 8 bits a sample; Pillow writes none of 2 and 4 bits."""
    rows = [b"\0" + np.packbits(
        ((row[:, None] >> np.arange(bits - 1, -1, -1)) & 1).astype(np.uint8).reshape(-1)
    ).tobytes() for row in numbers]  # fmt: skip
    header = struct.pack(">IIBBBBB", numbers.shape[1], numbers.shape[0], bits, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + png_chunk(b"IDAT", zlib.compress(b"".join(rows)))
        + png_chunk(b"IEND", b"")
    )


def tiff_of_bits(numbers: np.ndarray, bits: int, photometric: int | None) -> bytes:
    """A TIFF of one strip, without a tag that is None; Pillow writes none of 2 and 4 bits."""
    height, width = numbers.shape
    if bits == 16:
        strip = numbers.astype("<u2").tobytes()
    else:
        shifted = (numbers[:, :, None] >> np.arange(bits - 1, -1, -1)) & 1
        strip = np.packbits(shifted.reshape(height, -1).astype(np.uint8), axis=1).tobytes()
    tags: dict[int, int | None] = {256: width, 257: height, 258: bits, 259: 1, 262: photometric}
    tags |= {273: 0, 277: 1, 278: height, 279: len(strip)}
    given = {tag: value for tag, value in tags.items() if value is not None}
    given[273] = 8 + 2 + 12 * len(given) + 4
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in given.items())
    return struct.pack("<2sHIH", b"II", 42, 8, len(given)) + directory + bytes(4) + strip


def bmp_of_bits(numbers: np.ndarray, bits: int, palette: list[int], is_old: bool = False) -> bytes:
    """A BMP with a palette of greys; Pillow writes none of 4 bits."""
    height, width = numbers.shape
    shifted = (numbers[::-1, :, None] >> np.arange(bits - 1, -1, -1)) & 1
    packed = np.packbits(shifted.reshape(height, -1).astype(np.uint8), axis=1)
    rows = np.pad(packed, ((0, 0), (0, -packed.shape[1] % 4))).tobytes()
    if is_old:
        header = struct.pack("<IHHHH", 12, width, height, 1, bits)
        colors = b"".join(bytes([grey] * 3) for grey in palette)
    else:
        header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, 0, len(rows), 0, 0, len(palette), 0)
        colors = b"".join(bytes([grey] * 3 + [0]) for grey in palette)
    at = 14 + len(header) + len(colors)
    return struct.pack("<2sIII", b"BM", at + len(rows), 0, at) + header + colors + rows


def samples(data: bytes, *, in_color: bool = False) -> np.ndarray:
    return decode_mask(data, MAX_PIXELS, in_color)[0]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(saved(Image.fromarray(painted()), "PNG"), id="grey PNG"),
        pytest.param(saved(with_palette(painted()), "PNG"), id="palette PNG"),
        pytest.param(saved(with_palette(painted()), "PNG", bits=2), id="palette PNG of 2 bits"),
        pytest.param(saved(with_palette(painted()), "PNG", transparency=0), id="palette PNG, one clear"),
        pytest.param(saved(Image.fromarray(painted().astype(np.uint16)), "PNG"), id="16-bit PNG"),
        pytest.param(png_of_bits(painted(), 2), id="grey PNG of 2 bits"),
        pytest.param(png_of_bits(painted(), 4), id="grey PNG of 4 bits"),
        pytest.param(saved(Image.fromarray(np.repeat(painted()[..., None], 3, 2)), "PNG"), id="grey as RGB"),
        pytest.param(saved(Image.fromarray(painted()), "TIFF"), id="TIFF"),
        pytest.param(saved(Image.fromarray(painted()), "TIFF", compression="tiff_lzw"), id="TIFF, LZW"),
        pytest.param(saved(with_palette(painted()), "TIFF"), id="palette TIFF"),
        pytest.param(saved(Image.fromarray(painted().astype(np.uint16)), "TIFF"), id="16-bit TIFF"),
        pytest.param(saved(Image.fromarray(painted().astype(np.int32)), "TIFF"), id="32-bit TIFF"),
        pytest.param(saved(Image.fromarray(painted()), "BMP"), id="BMP"),
        pytest.param(saved(with_palette(painted()), "GIF"), id="GIF"),
    ],
)
def test_every_file_gives_its_numbers(data: bytes) -> None:
    numbers = class_numbers(samples(data), ClassValues(((0,), (1,), (2,))))
    assert numbers.dtype == np.uint8
    assert numbers.tolist() == painted().tolist()


@pytest.mark.parametrize("format_", ["PNG", "TIFF"])
def test_one_bit_is_0_and_1(format_: str) -> None:
    bits = painted(values=2)
    data = saved(Image.fromarray(bits.astype(bool)), format_)
    assert samples(data)[:, :, 0].tolist() == bits.tolist()


@pytest.mark.parametrize("in_palette", [False, True])
def test_colors_stand_for_classes(in_palette: bool) -> None:
    image = with_palette(painted())
    data = saved(image if in_palette else image.convert("RGB"), "PNG")
    values = ClassValues(((0x000000,), (0x800000,)), (0x008000,), in_color=True)
    numbers = class_numbers(samples(data, in_color=True), values)
    assert numbers.tolist() == np.where(painted() == 2, 255, painted()).tolist()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(saved(Image.fromarray(painted()), "JPEG"), "lossy_mask", id="JPEG"),
        pytest.param(saved(Image.fromarray(painted()), "WEBP"), "lossy_mask", id="WebP"),
        pytest.param(
            saved(Image.fromarray(painted()), "TIFF", compression="jpeg"), "lossy_mask", id="JPEG in TIFF"
        ),
        pytest.param(saved(Image.fromarray(painted().astype(np.float32)), "TIFF"), "unsupported", id="float"),
        pytest.param(
            saved(Image.fromarray(painted().astype(np.int32) - 1), "TIFF"), "unsupported", id="negative"
        ),
        pytest.param(
            saved(Image.fromarray(np.full((4, 4, 4), 127, np.uint8)), "PNG"), "unsupported", id="transparent"
        ),
        pytest.param(saved(Image.fromarray(painted()), "PNG")[:-30], "truncated", id="cut short"),
        pytest.param(b"", "empty", id="empty"),
        pytest.param(b"<svg>", "unknown_format", id="SVG"),
    ],
)
def test_other_files_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ImageRejected) as refused:
        samples(data)
    assert refused.value.reason == reason


@pytest.mark.parametrize("photometric", [0, 1, None])
@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_a_tiff_gives_the_numbers_in_it_whichever_is_white(bits: int, photometric: int | None) -> None:
    numbers = np.array([[0, 1, 2, 3, (1 << bits) - 1]] * 3, np.uint16) & ((1 << bits) - 1)
    assert samples(tiff_of_bits(numbers, bits, photometric))[:, :, 0].tolist() == numbers.tolist()


def test_the_colors_of_a_tiff_are_those_that_it_shows() -> None:
    data = tiff_of_bits(np.array([[0, 255]], np.uint8), 8, photometric=0)
    assert samples(data, in_color=True).tolist() == [[[255] * 3, [0] * 3]]


@pytest.mark.parametrize(
    ("bits", "palette", "is_old"),
    [
        pytest.param(4, list(range(16)), False, id="4 bits"),
        pytest.param(4, list(range(16)), True, id="4 bits of OS/2"),
        pytest.param(4, [0, 255], False, id="4 bits, two colours"),
        pytest.param(8, [0, 255], False, id="8 bits, two colours"),
    ],
)
@pytest.mark.parametrize("in_color", [False, True])
def test_a_bmp_that_pillow_reads_with_other_bits_is_refused(
    bits: int, palette: list[int], is_old: bool, in_color: bool
) -> None:
    data = bmp_of_bits(painted(values=2), bits, palette, is_old)
    with pytest.raises(ImageRejected, match=f"a BMP of {bits} bits a pixel .* save it as PNG"):
        samples(data, in_color=in_color)


@pytest.mark.parametrize(
    ("bits", "palette"), [(1, [0, 255]), (1, [255, 0]), (4, [0, 90, 180]), (8, list(range(256)))]
)
def test_other_bmps_give_their_indexes(bits: int, palette: list[int]) -> None:
    numbers = painted(values=2)
    assert samples(bmp_of_bits(numbers, bits, palette))[:, :, 0].tolist() == numbers.tolist()


def test_a_mask_larger_than_allowed_is_refused() -> None:
    with pytest.raises(ImageRejected) as refused:
        decode_mask(saved(Image.fromarray(painted()), "PNG"), 100, in_color=False)
    assert refused.value.reason == "too_many_pixels"


def test_its_own_orientation_turns_a_mask() -> None:
    exif = Image.Exif()
    exif[274] = 6
    data = saved(Image.fromarray(painted()), "PNG", exif=exif.tobytes())
    turned, facts = decode_mask(data, MAX_PIXELS, in_color=False)
    assert facts.orientation == 6
    assert turned[:, :, 0].tolist() == np.rot90(painted(), -1).tolist()


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (np.array([[0, 1, 7, 7]], np.uint8), "2 of its pixels have values that stand for no class: 7"),
        (np.arange(9, dtype=np.uint16)[np.newaxis], "7 of its pixels .*: 2, 3, 4, 5, 6 and 2 more"),
    ],
)
def test_unknown_values_are_named(numbers: np.ndarray, said: str) -> None:
    with pytest.raises(ImageRejected, match=said):
        class_numbers(numbers[:, :, np.newaxis], ClassValues(((0,), (1,))))


def test_large_masks_take_little_memory_beside_their_pixels() -> None:
    colored = np.zeros((3_000, 2_000, 3), np.uint8)
    colored[:, ::2, 0] = 0x80
    colored[-1, -1] = 9
    values = ClassValues(((0,), (0x800000,)), in_color=True)
    tracemalloc.start()
    try:
        with pytest.raises(ImageRejected, match=r"'1 of its pixels .*: #090909'"):
            class_numbers(colored, values)
        numbers = class_numbers(colored[:-1], values)
        assert tracemalloc.get_traced_memory()[1] < 8 * colored[:, :, 0].size
    finally:
        tracemalloc.stop()
    assert (numbers[:, ::2] == 1).all()
    assert not numbers[:, 1::2].any()


def test_unknown_values_may_be_ignored_and_values_merged() -> None:
    values = ClassValues(((0,), (5, 300)), (255,), ignores_unknown=True)
    numbers = class_numbers(np.array([[[0], [5], [255], [9]]], np.uint8), values)
    assert numbers.tolist() == [[0, 1, 255, 255]]
    numbers = class_numbers(np.array([[[0], [300]]], np.uint16), values)
    assert numbers.tolist() == [[0, 1]]


def test_colors_need_colors() -> None:
    colored = np.array([[[1, 2, 3]]], np.uint8)
    with pytest.raises(ImageRejected, match="it is in colour"):
        class_numbers(colored, ClassValues(((0,),)))
    with pytest.raises(ImageRejected, match="#010203"):
        class_numbers(colored, ClassValues(((0,),), in_color=True))


@given(
    height=st.integers(1, 70),
    width=st.integers(1, 70),
    resize=st.sampled_from(["short", "long", "pad", "crop", "none"]),
    size=st.integers(8, 40),
    upscale=st.booleans(),
)
def test_each_pixel_is_the_one_that_its_centre_lies_in(
    height: int, width: int, resize: Any, size: int, upscale: bool
) -> None:
    at = np.arange(height * width, dtype=np.uint16).reshape(height, width)
    to = geometry(height, width, ImageConfig(resize=resize, size=size, upscale=upscale).sizing)
    fitted = fit_mask(at, to, 65_535)
    assert fitted.shape == to.canvas
    y, x = to.offset
    shown = fitted[y : y + to.scaled[0], x : x + to.scaled[1]]
    taken = np.divmod(shown.astype(np.int64), width)
    for axis, pixels in enumerate((taken[0][:, 0], taken[1][0])):
        first, length, scaled = to.window[axis], to.window[2 + axis], to.scaled[axis]
        for number, pixel in enumerate(pixels.tolist()):
            centre = first + Fraction(2 * number + 1, 2) * Fraction(length, scaled)
            assert pixel <= centre < pixel + 1
    around = np.ones(to.canvas, bool)
    around[y : y + to.scaled[0], x : x + to.scaled[1]] = False
    assert (fitted[around] == 65_535).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_stored_masks_lose_nothing(dtype: Any) -> None:
    numbers = np.random.default_rng(1).integers(0, np.iinfo(dtype).max + 1, (37, 29)).astype(dtype)
    data = encode_mask(numbers)
    assert data == encode_mask(numbers)
    stored = decode_stored_mask(data)
    assert stored.dtype == dtype
    assert (stored == numbers).all()
    assert (np.asarray(Image.open(io.BytesIO(data))) == numbers).all()


@pytest.mark.parametrize("data", [b"", b"no PNG", saved(Image.fromarray(painted()), "JPEG")[:40]])
def test_damaged_stored_masks_are_refused(data: bytes) -> None:
    with pytest.raises(ImageRejected):
        decode_stored_mask(data)


def test_16_bits_store_many_classes() -> None:
    values = ClassValues(tuple((number,) for number in range(300)), ignore=65_535)
    numbers = class_numbers(np.array([[[299]]], np.uint16), values)
    assert (numbers.dtype, values.ignore) == (np.uint16, 65_535)


def test_classes_are_counted_without_ignored_pixels() -> None:
    assert classes_shown(np.array([[0, 2, 2, 255]], np.uint8), 255) == ([0, 2], [1, 2])
    assert classes_shown(np.full((2, 2), 255, np.uint8), 255) == ([], [])


def test_damaged_masks_are_read_or_refused() -> None:
    values = ClassValues(((0,),), ignores_unknown=True)
    outcomes = set()
    for number in range(400):
        try:
            read, _ = decode_mask(mutant(number), 1 << 22, in_color=False)
            class_numbers(read[:, :, :1], values)
            outcomes.add("read")
        except ImageRejected as rejected:
            outcomes.add(rejected.reason)
    assert {"read", "lossy_mask", "truncated"} <= outcomes
