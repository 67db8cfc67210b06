"""Colours that a file states by code points: HDR and wide gamuts are refused by name, sRGB is read."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from shardmill.infra.codecs import decode
from shardmill.infra.codecs.color.icc import ColorCodes, codes_in_boxes
from shardmill.infra.codecs.formats import ImageRejected

COLOUR = (200, 30, 40)


def saved(kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (64, 48), COLOUR).save(stream, kind, **options)
    return stream.getvalue()


def png(primaries: int, curve: int, *, behind: bytes = b"IHDR", icc: bytes | None = None) -> bytes:
    """A PNG with cICP behind the first chunk of a name."""
    data = saved("PNG", icc_profile=icc)
    at = data.index(behind) + 4 + int.from_bytes(data[data.index(behind) - 4 :][:4], "big") + 4
    content = b"cICP" + bytes([primaries, curve, 0, 1])
    return data[:at] + struct.pack(">I", 4) + content + struct.pack(">I", zlib.crc32(content)) + data[at:]


def avif(primaries: int, curve: int) -> bytes:
    data = saved("AVIF", quality=95, subsampling="4:4:4")
    at = data.index(b"nclx") + 4
    return data[:at] + struct.pack(">HH", primaries, curve) + data[at + 4 :]


@pytest.mark.parametrize("made", [png, avif])
@pytest.mark.parametrize(
    ("primaries", "curve", "named"),
    [
        (9, 16, "HDR by PQ"),
        (9, 18, "HDR by HLG"),
        (1, 16, "HDR by PQ"),
        (1, 8, "linear"),
        (1, 4, "of gamma 2.2"),
        (1, 11, "of transfer characteristics 11"),
        (9, 13, "those of BT.2020"),
        (12, 13, "those of Display P3"),
        (10, 13, "those of colour primaries 10"),
    ],
)
def test_colours_that_are_not_converted_are_refused(
    made: object, primaries: int, curve: int, named: str
) -> None:
    data = png(primaries, curve) if made is png else avif(primaries, curve)
    with pytest.raises(ImageRejected, match=f"its colours are {named}.*; convert it to sRGB first") as caught:
        decode(data)
    assert caught.value.reason == "unsupported"


@pytest.mark.parametrize("codes", [(1, 13), (2, 2), (1, 1), (6, 6), (5, 13)])
def test_colours_like_srgb_are_read(codes: tuple[int, int]) -> None:
    for data, tolerance in ((png(*codes), 0), (avif(*codes), 3)):
        with Image.open(io.BytesIO(data)) as image:
            wanted = np.asarray(image.convert("RGB"), np.int16)
        assert np.abs(decode(data).pixels - wanted).max() <= tolerance


def test_a_chunk_out_of_place_counts_as_absent() -> None:
    assert decode(png(9, 16, behind=b"IDAT")).pixels[0, 0].tolist() == list(COLOUR)


def test_a_profile_converts_a_wide_gamut_but_no_hdr() -> None:
    ColorCodes(12, 13).check(has_profile=True)
    with pytest.raises(ImageRejected, match="HDR by PQ"):
        ColorCodes(9, 16).check(has_profile=True)


def test_damaged_boxes_state_no_colours() -> None:
    data = avif(9, 16)
    assert codes_in_boxes(data) == ColorCodes(9, 16)
    for end in range(0, data.index(b"mdat"), 3):
        codes_in_boxes(data[:end])  # raises nothing
    assert codes_in_boxes(b"") is None
