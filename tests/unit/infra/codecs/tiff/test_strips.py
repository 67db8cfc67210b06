"""TIFFs with strips that are missing or too short for their rows."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected
from tests.samples.images.forms import gradient_image, saved
from tests.samples.images.jpegs import noise

WIDTH, HEIGHT, ROWS = 40, 30, 10  # a strip has 10 rows


def tiff(strips: list[bytes], **tags: int) -> bytes:
    """A grey TIFF of uncompressed strips, with its directory at the end."""
    places, content = [], b""
    for strip in strips:
        places.append(8 + len(content))
        content += strip
    start = 8 + len(content)
    lists = struct.pack(f"<{2 * len(strips)}I", *places, *(len(strip) for strip in strips))
    entries = {256: WIDTH, 257: HEIGHT, 258: 8, 259: 1, 262: 1, 277: 1, 278: ROWS}
    entries |= {int(name[1:]): value for name, value in tags.items()}
    rows = [struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries.items()]
    one = len(strips) == 1
    offsets, lengths = (places[0], len(strips[0])) if one else (start, start + 4 * len(strips))
    rows += [
        struct.pack("<HHII", 273, 4, len(strips), offsets),
        struct.pack("<HHII", 279, 4, len(strips), lengths),
    ]
    rows.sort(key=lambda row: row[:2][::-1])
    directory = struct.pack("<H", len(rows)) + b"".join(rows) + bytes(4)
    return struct.pack("<2sHI", b"II", 42, start + len(lists)) + content + lists + directory


def with_tag(data: bytes, tag: int, change: Callable[[int], int]) -> bytes:
    """The little-endian TIFF with the value of a tag changed, in the first of its values."""
    (start,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, start)
    changed = bytearray(data)
    for entry in range(start + 2, start + 2 + 12 * count, 12):
        found, kind, number, value = struct.unpack_from("<HHII", data, entry)
        if found == tag:
            form = {3: "<H", 4: "<I"}[kind]
            size = struct.calcsize(form)
            place = entry + 8 if number * size <= 4 else value
            struct.pack_into(form, changed, place, change(struct.unpack_from(form, data, place)[0]))
    return bytes(changed)


def reason_of(data: bytes, allow_truncated: bool = False) -> str:
    with pytest.raises(ImageRejected, match=r"strip|ends early") as caught:
        codecs.decode(data, allow_truncated=allow_truncated)
    return caught.value.reason


GREY = noise(channels=1)[:HEIGHT, :WIDTH, 0]
STRIPS = [GREY[top : top + ROWS].tobytes() for top in range(0, HEIGHT, ROWS)]


def test_whole_strips() -> None:
    assert np.array_equal(codecs.decode(tiff(STRIPS), 1).pixels[:, :, 0], GREY)
    assert np.array_equal(codecs.decode(tiff([b"".join(STRIPS)], t278=HEIGHT), 1).pixels[:, :, 0], GREY)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_strip_cut_in_half_is_truncated(number: int) -> None:
    cut = [strip[: len(strip) // 2] if i == number else strip for i, strip in enumerate(STRIPS)]
    assert reason_of(tiff(cut)) == "truncated"
    # The bytes of the next strip would stand where rows are missing.
    assert reason_of(tiff(cut), allow_truncated=True) == "truncated"


def test_a_single_strip_cut_in_half_is_truncated() -> None:
    assert reason_of(tiff([b"".join(STRIPS)[: HEIGHT * WIDTH // 2]], t278=HEIGHT)) == "truncated"


def test_a_missing_strip_is_truncated() -> None:
    assert reason_of(tiff(STRIPS[:2])) == "truncated"


def test_a_single_strip_without_a_length_is_whole() -> None:
    data = with_tag(tiff([b"".join(STRIPS)], t278=HEIGHT), 279, lambda _: 0)
    assert np.array_equal(codecs.decode(data, 1).pixels[:, :, 0], GREY)


@pytest.mark.parametrize(
    ("mode", "compression", "end"),
    [("RGB", "jpeg", 1), ("1", "group4", 1), ("RGB", "jpeg", 40), ("1", "group4", 40)],
)
def test_a_compressed_strip_that_lacks_its_end_is_truncated(mode: str, compression: str, end: int) -> None:
    data = saved(gradient_image(height=200, width=160).convert(mode), "TIFF", compression=compression)
    assert codecs.decode(data).pixels.shape == (200, 160, 3)
    cut = with_tag(data, 279, lambda length: length - 2 - end)
    assert reason_of(cut) == "truncated"


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "CMYK", "1", "P", "I;16", "LAB"])
@pytest.mark.parametrize("options", [{}, {"strip_size": 500}, {"big_tiff": True}])
def test_every_kind_of_strip_is_taken(mode: str, options: dict[str, int]) -> None:
    image = gradient_image(height=50, width=37)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) << 8)
    elif mode == "LAB":
        image = Image.merge("LAB", image.split())
    else:
        image = image.convert(mode)
    assert codecs.decode(saved(image, "TIFF", **options)).pixels.shape == (50, 37, 3)


def test_many_tiles_that_are_not_there_cost_no_time() -> None:
    data = tiff(STRIPS, t256=13_000, t257=13_000, t322=16, t323=16, t324=8, t325=256)
    assert reason_of(data) == "truncated"


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "packbits"])
@pytest.mark.parametrize("beyond", [1000, 9000])
def test_a_strip_whose_length_is_overstated_is_whole(compression: str, beyond: int) -> None:
    """Some writers state the length before compression."""
    data = saved(gradient_image(height=64, width=80), "TIFF", compression=compression)
    overstated = with_tag(data, 279, lambda length: length + beyond)
    assert np.array_equal(codecs.decode(overstated).pixels, codecs.decode(data).pixels)


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "packbits"])
@pytest.mark.parametrize("missing", [1, 30])
def test_an_overstated_strip_that_lacks_its_end_is_truncated(compression: str, missing: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH), dtype=np.uint8)
    strip = codec_of(Image.fromarray(pixels), compression)
    number = {"tiff_lzw": 5, "tiff_adobe_deflate": 8, "packbits": 32_773}[compression]
    whole = tiff([strip], t278=HEIGHT, t259=number)
    assert np.array_equal(codecs.decode(whole, 1).pixels[:, :, 0], pixels)
    start = int.from_bytes(whole[4:8], "little")
    # The directory first, so that the strip is the last thing in the file.
    moved = whole[:8] + whole[start:] + strip
    moved = moved[:4] + struct.pack("<I", 8) + moved[8:]
    moved = with_tag(moved, 273, lambda _: len(moved) - len(strip))
    assert np.array_equal(codecs.decode(moved, 1).pixels[:, :, 0], pixels)
    # End codes may be missing without harm, so more than those is cut.
    assert reason_of(moved[: -missing - 8]) == "truncated"


def codec_of(image: Image.Image, compression: str) -> bytes:
    """The compressed strip of a picture."""
    data = saved(image, "TIFF", compression=compression)
    with Image.open(io.BytesIO(data)) as opened:
        tags = dict(getattr(opened, "tag_v2", {}))
    return data[tags[273][0] : tags[273][0] + tags[279][0]]
