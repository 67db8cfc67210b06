"""Images stored as arrays or as PNG of 16 bits: read back by us, and by other libraries as the page says."""

from __future__ import annotations

import struct
from typing import Any

import cv2
import imagecodecs
import numpy as np
import numpy.typing as npt
import pytest

from shardmill.infra.codecs.arrays import (
    decode_array,
    decode_samples,
    encode_array,
    encode_samples,
    for_people,
    in_grey,
)
from shardmill.infra.codecs.measures import thumbnail
from shardmill.infra.errors import CorruptDataError

Samples = npt.NDArray[Any]
_CODES = {"uint8": "B", "uint16": "H", "float32": "f"}


def samples(dtype: str, shape: tuple[int, int, int]) -> Samples:
    """Random bits of a dtype: of float32 these are numbers of every size, NaN and infinities."""
    rng = np.random.default_rng(sum(shape))
    return rng.integers(0, 256, (*shape, np.dtype(dtype).itemsize), np.uint8).view(dtype)[..., 0]


def read_by_the_page(image: bytes, shape: tuple[int, int, int], dtype: str) -> list[bytes]:
    """The bytes of each sample [H, W, C] in order, by loops over the steps of docs/dataset-format.md."""
    height, width, channels = shape
    size = struct.calcsize(_CODES[dtype])
    plain = imagecodecs.zstd_decode(image)  # another build of the library than pyarrow's
    assert len(plain) == size * channels * height * width
    found = {}
    for channel in range(channels):
        for row in range(height):
            left = 0
            for column in range(width):
                at = (channel * height + row) * width + column
                number = sum(plain[rank * channels * height * width + at] << 8 * rank for rank in range(size))
                left = (left + number) % (1 << 8 * size)
                found[row, column, channel] = left.to_bytes(size, "little")
    return [found[place] for place in np.ndindex(height, width, channels)]


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 5, 2), (3, 1, 4), (1, 9, 40), (16, 12, 3)], ids=str)
@pytest.mark.parametrize("dtype", _CODES)
def test_an_array_has_the_bits_that_went_in(dtype: str, shape: tuple[int, int, int]) -> None:
    pixels = samples(dtype, shape)
    stored = encode_array(pixels)
    read = decode_array(memoryview(stored), shape, dtype)
    assert (read.dtype, read.shape, read.tobytes()) == (pixels.dtype, shape, pixels.tobytes())
    assert b"".join(read_by_the_page(stored, shape, dtype)) == pixels.tobytes()


def test_the_layout_in_memory_does_not_change_the_bytes() -> None:
    pixels = samples("uint16", (6, 4, 5))
    stored = encode_array(pixels)
    assert encode_array(np.asfortranarray(pixels)) == stored
    assert encode_array(pixels.astype(">u2")) == stored
    kept = pixels.copy()
    encode_array(pixels)
    assert (pixels == kept).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_of_16_bits_is_read_by_libpng(channels: int) -> None:
    pixels = samples("uint16", (9, 7, channels))
    stored = encode_samples(pixels, "png")
    read = imagecodecs.png_decode(stored)
    assert read.dtype == np.uint16
    assert read.tobytes() == pixels.tobytes()
    assert decode_samples(stored, "png", pixels.shape, "uint16").tobytes() == pixels.tobytes()


@pytest.mark.parametrize("spoiled", ["cut", "empty", "other shape", "other dtype", "no frame"])
def test_a_damaged_array_is_refused(spoiled: str) -> None:
    pixels = samples("uint16", (8, 8, 5))
    stored, shape, dtype = encode_array(pixels), (8, 8, 5), "uint16"
    stored = {"cut": stored[:-5], "empty": b"", "no frame": b"x" * 99}.get(spoiled, stored)
    shape = (8, 8, 4) if spoiled == "other shape" else shape
    dtype = "float32" if spoiled == "other dtype" else dtype
    with pytest.raises(CorruptDataError, match="no array of"):
        decode_array(stored, shape, dtype)


def test_a_png_of_another_shape_or_depth_is_refused() -> None:
    stored = encode_samples(samples("uint16", (8, 8, 3)), "png")
    of_8_bits = imagecodecs.png_encode(np.zeros((8, 8, 3), np.uint8))
    for image, shape in ((stored, (8, 8, 1)), (stored[:60], (8, 8, 3)), (of_8_bits, (8, 8, 3))):
        with pytest.raises(CorruptDataError, match="no PNG of uint16"):
            decode_samples(image, "png", shape, "uint16")


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_copies_of_another_contrast_look_the_same(dtype: str) -> None:
    """What copies are recognised by does not depend on the unit of the samples, and sees every channel."""
    scene = cv2.GaussianBlur(np.random.default_rng(0).random((64, 64, 5)), (0, 0), 4)
    scene = (scene - scene.min()) / np.ptp(scene) * 1000
    copy = scene * 30 + 20
    one, other = (thumbnail(in_grey(pixels.astype(dtype))) for pixels in (scene, copy))
    assert np.abs(one.astype(int) - other).max() <= 2
    last = scene.copy()
    last[:, :, 4] = last[::-1, :, 4]
    assert np.abs(thumbnail(in_grey(last.astype(dtype))).astype(int) - one).max() > 20


def test_a_blank_image_is_shown_without_numbers_that_are_none() -> None:
    for pixels in (np.zeros((4, 4, 5), np.uint16), np.full((4, 4, 1), np.inf, np.float32)):
        assert in_grey(pixels).max() == 0
        assert for_people(pixels).shape == (4, 4, 3 if pixels.shape[2] == 5 else 1)
