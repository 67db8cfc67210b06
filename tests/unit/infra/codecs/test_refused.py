"""Files that are no image, or too large a one, are refused by their headers."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs.formats import check_format
from tests.samples.images.forms import gradient, gradient_image, png_chunk, saved


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"  <!DOCTYPE html><html>", "HTML page"),
        (b"%PDF-1.7", "PDF"),
        (b"8BPS\x00\x01", "Photoshop"),
        (b"\x00\x00\x00\x20ftypisom\x00\x00\x02\x00isommp41", "a film"),
        (b"\x00\x00\x00\x18ftypcrx \x00\x00\x00\x01crx isom", "a camera raw file"),
        (b"IIU\x00\x18\x00\x00\x00", "a camera raw file"),
        (b"IIRO\x08\x00\x00\x00", "a camera raw file"),
        (b"FUJIFILMCCD-RAW 0201", "a camera raw file"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS"),
        (bytes(100), "nothing but zeros"),
        (b"RIFF\x24\x00\x00\x00WAVEfmt ", "52 49 46 46"),
    ],
)
def test_what_is_no_image_is_told_in_words(data: bytes, said: str) -> None:
    with pytest.raises(ImageRejected, match=said) as caught:
        check_format(data)
    assert caught.value.reason == "unknown_format"


def bomb_png() -> bytes:
    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 6, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", b"") + png_chunk(b"IEND", b"")
    )


def with_size(data: bytes, at: int, form: str, *size: int) -> bytes:
    """``data`` with the size in its header replaced."""
    return data[:at] + struct.pack(form, *size) + data[at + struct.calcsize(form) :]


def bombs() -> dict[str, bytes]:
    """Small files that announce enormous pictures."""
    jpeg, gif = saved(gradient_image(), "JPEG"), saved(gradient_image(), "GIF")
    webp = saved(gradient_image(), "WEBP")
    tiff, bmp, jpeg2000 = (
        saved(gradient_image(), "TIFF"),
        saved(gradient_image(), "BMP"),
        saved(gradient_image(), "JPEG2000", no_jp2=True),
    )
    width = tiff.index(struct.pack("<HHI", 256, 4, 1))
    return {
        "png": bomb_png(),
        "jpeg": with_size(jpeg, jpeg.index(b"\xff\xc0") + 5, ">HH", 60_000, 60_000),
        "gif": with_size(gif, 6, "<HH", 60_000, 60_000),
        "webp": with_size(webp, 26, "<HH", 0x3FFF, 0x3FFF),
        "tiff": with_size(with_size(tiff, width + 8, "<I", 1 << 20), width + 20, "<I", 1 << 20),
        "bmp": with_size(bmp, 18, "<ii", 1 << 20, 1 << 20),
        "jpeg2000": with_size(jpeg2000, 8, ">II", 1 << 20, 1 << 20),
    }


@pytest.mark.parametrize("format_", bombs())
def test_a_bomb_is_refused_by_its_header(format_: str) -> None:
    with pytest.raises(ImageRejected) as caught:
        codecs.decode(bombs()[format_], max_pixels=100_000_000)
    assert caught.value.reason == "too_many_pixels"


def test_a_tile_may_not_be_larger_than_an_image() -> None:
    def tiled(side: int) -> bytes:
        tags = {256: 16, 257: 16, 258: 8, 259: 1, 262: 1, 277: 1, 322: side, 323: side, 324: 8, 325: 256}
        entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
        start = struct.pack("<4sI", b"II*\x00", 8 + 256)
        return start + bytes(range(256)) + struct.pack("<H", len(tags)) + entries + bytes(4)

    assert codecs.decode(tiled(16), 1).pixels.tobytes() == bytes(range(256))
    with pytest.raises(ImageRejected) as caught:
        codecs.decode(tiled(1 << 14), max_pixels=100_000_000)
    assert caught.value.reason == "too_many_pixels"


@pytest.mark.parametrize("name", [b"zTXt", b"iTXt", b"iCCP", b"tEXt", b"abCd"])
def test_a_monstrous_or_damaged_chunk_that_is_not_the_picture_is_stepped_over(name: bytes) -> None:
    huge = zlib.compress(bytes(200 << 20))
    content = b"key\x00" + (b"\x01\x00\x00\x00" if name == b"iTXt" else b"\x00") + huge
    plain = saved(gradient_image(), "PNG")
    for chunk in (png_chunk(name, content), png_chunk(name, b"damaged\x00\x00" + b"z" * 40)[:-4] + b"~crc"):
        assert np.array_equal(codecs.decode(plain[:33] + chunk + plain[33:]).pixels, gradient())
