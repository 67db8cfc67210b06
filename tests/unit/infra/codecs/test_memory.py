"""The memory that decoding takes is known from the header, in every form of header."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image
from pydicom.data import get_testdata_file

from shardmill.infra.codecs.memory import decoding_bytes
from shardmill.infra.preparation import Preparation

HEIGHT, WIDTH = 31, 53
PIXELS = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
HOW = Preparation()


def pillow(form: str, mode: str = "RGB", **options: Any) -> Callable[[], bytes]:
    def write() -> bytes:
        sink = io.BytesIO()
        Image.fromarray(PIXELS).convert(mode).save(sink, form, **options)
        return sink.getvalue()

    return write


def tiff(**options: Any) -> Callable[[], bytes]:
    def write() -> bytes:
        sink = io.BytesIO()
        with tifffile.TiffWriter(sink, bigtiff=options.pop("bigtiff", False)) as writer:
            if options.pop("behind_a_thumbnail", False):
                writer.write(PIXELS[::4, ::4], photometric="rgb", subfiletype=1)
            writer.write(PIXELS, photometric="rgb", **options)
        return sink.getvalue()

    return write


def heif() -> bytes:
    """As pi-heif cannot write one: the boxes of an AVIF under the brand of a HEIF."""
    return pillow("AVIF")().replace(b"ftypavif", b"ftypheic").replace(b"avifmif1", b"heicmif1")


FILES: dict[str, Callable[[], bytes]] = {
    "jpeg": pillow("JPEG"),
    "progressive jpeg": pillow("JPEG", progressive=True, exif=b"Exif\0\0" + bytes(9000)),
    "png": pillow("PNG"),
    "gif": pillow("GIF", "P"),
    "bmp": pillow("BMP"),
    "bmp from the top": lambda: pillow("BMP")().replace(
        struct.pack("<ii", WIDTH, HEIGHT), struct.pack("<ii", WIDTH, -HEIGHT), 1
    ),
    "bmp of OS/2": lambda: (
        b"BM" + bytes(12) + struct.pack("<IHHHH", 12, WIDTH, HEIGHT, 1, 24) + PIXELS.tobytes()
    ),
    "lossy webp": pillow("WEBP"),
    "lossless webp": pillow("WEBP", lossless=True),
    "webp with opacity": pillow("WEBP", "RGBA", exif=b"Exif\0\0" + bytes(8)),
    "avif": pillow("AVIF"),
    "heif": heif,
    "jpeg 2000": pillow("JPEG2000"),
    "jpeg 2000 without boxes": lambda: bytes(imagecodecs.jpeg2k_encode(PIXELS, codecformat="j2k")),
    "tiff": tiff(),
    "tiled bigtiff": tiff(bigtiff=True, tile=(16, 16)),
    "tiff behind a thumbnail": tiff(behind_a_thumbnail=True),
}


@pytest.mark.parametrize("name", FILES)
def test_memory_is_counted_by_the_pixels_that_the_header_states(name: str) -> None:
    data = FILES[name]()
    allowed, refused = (
        decoding_bytes(data, HOW.model_copy(update={"max_pixels": HEIGHT * WIDTH - less})) for less in (0, 1)
    )
    assert refused == 2 * len(data)
    assert allowed > refused


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("length", [0, 3, 12, 20, 40, 100])
def test_a_file_that_ends_within_its_header_costs_itself_or_what_it_states(name: str, length: int) -> None:
    data = FILES[name]()[:length]
    assert decoding_bytes(data, HOW) >= len(data)


def test_memory_for_dicom_is_counted_by_its_values_not_its_length() -> None:
    path = get_testdata_file("693_J2KI.dcm", download=False)
    assert isinstance(path, str), "it comes with pydicom"
    data = Path(path).read_bytes()
    assert decoding_bytes(data, HOW) > 12 * 512 * 512 * 2 > 100 * len(data)
    assert decoding_bytes(data[:900], HOW) <= 12 * 512 * 512 * 2 + 2 * 900
    assert decoding_bytes(data[:140], HOW) == 2 * 140, "it does not say its size"
