"""JPEG 2000 of every depth, sign and number of components, in every box, against what was written and OpenCV.

OpenJPEG writes the codestreams, and the boxes around them are written here.
"""

from __future__ import annotations

import base64
import struct
from typing import Any

import cv2
import imagecodecs
import numpy as np
import numpy.typing as npt
import pytest

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected, Pixels
from tests.samples.images.forms import rgb_profile

HEIGHT, WIDTH = 24, 40
SRGB, GREY, SYCC, CMYK = 16, 17, 18, 12
OPACITY, PREMULTIPLIED = 1, 2


def samples(bits: int, channels: int, signed: bool = False) -> npt.NDArray[Any]:
    """All values from black to white, other ones in each channel: [HEIGHT, WIDTH, channels]."""
    ramp = np.linspace(0, (1 << bits) - 1, HEIGHT * WIDTH).round().astype(np.int64).reshape(HEIGHT, WIDTH, 1)
    turned = [ramp, ramp[::-1], ramp[:, ::-1], ramp[::-1, ::-1], ramp][:channels]
    values = np.concatenate(turned, axis=2) - (1 << bits - 1 if signed else 0)
    return values.astype(f"{'i' if signed else 'u'}{1 if bits <= 8 else 2}")


def codestream(values: npt.NDArray[Any], bits: int) -> bytes:
    return imagecodecs.jpeg2k_encode(
        values[:, :, 0] if values.shape[2] == 1 else values,
        bitspersample=bits, codecformat="j2k", reversible=True, mct=False, level=0,
    )  # fmt: skip


def box(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", 8 + len(content)) + name + content


def jp2(values: npt.NDArray[Any], bits: int, space: int | bytes = SRGB, **more: bytes) -> bytes:
    """A file of a codestream; ``space`` is an enumerated one or an ICC profile."""
    height, width, channels = values.shape
    signed = 0x80 if values.dtype.kind == "i" else 0
    header = struct.pack(">IIHBBBB", height, width, channels, bits - 1 | signed, 7, 0, 0)
    color = struct.pack(">BBBI", 1, 0, 0, space) if isinstance(space, int) else b"\x02\x00\x00" + space
    inside = box(b"ihdr", header) + box(b"colr", color)
    inside += b"".join(box(name.encode(), content) for name, content in more.items())
    return (
        box(b"jP  ", b"\r\n\x87\n") + box(b"ftyp", b"jp2 \0\0\0\0jp2 ")
        + box(b"jp2h", inside) + box(b"jp2c", codestream(values, bits))
    )  # fmt: skip


def definitions(*entries: tuple[int, int, int]) -> bytes:
    """Number, type and association of channels."""
    return struct.pack(">H", len(entries)) + b"".join(struct.pack(">HHH", *entry) for entry in entries)


COLORS_AND_OPACITY = definitions((0, 0, 1), (1, 0, 2), (2, 0, 3), (3, OPACITY, 0))


def off(data: bytes, expected: npt.NDArray[Any]) -> float:
    pixels = codecs.decode(data).pixels
    return float(np.abs(pixels.astype(float) - np.broadcast_to(expected, pixels.shape)).max())


def shades(values: npt.NDArray[Any], bits: int) -> npt.NDArray[np.float64]:
    base = (1 << bits - 1) if values.dtype.kind == "i" else 0
    return (values.astype(np.float64) + base) * 255 / ((1 << bits) - 1)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("bits", range(1, 17))
def test_every_depth(bits: int, channels: int, signed: bool) -> None:
    values = samples(bits, channels, signed)
    files = [codestream(values, bits), jp2(values, bits, GREY if channels == 1 else SRGB)]
    for data in files:
        assert off(data, shades(values, bits)) <= (1.0 if bits == 16 else 0.51)
    source = codecs.decode(files[1]).source
    assert source.color == ("grey" if channels == 1 else "RGB") + (f" {bits}-bit" if bits > 8 else "")


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("bits", [8, 9, 12, 16])
def test_opencv_sees_the_same(bits: int, channels: int) -> None:
    data = jp2(samples(bits, channels), bits, GREY if channels == 1 else SRGB)
    seen = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    assert np.abs(codecs.decode(data).pixels.astype(int) - seen).max() <= 1


@pytest.mark.parametrize("bits", [8, 12, 16])
@pytest.mark.parametrize("channels", [2, 4])
@pytest.mark.parametrize("stated", [False, True])
def test_opacity(channels: int, bits: int, stated: bool) -> None:
    values = samples(bits, channels)
    alpha = shades(values, bits)[:, :, -1:] / 255
    boxes = {}
    if stated:
        boxes["cdef"] = COLORS_AND_OPACITY if channels == 4 else definitions((0, 0, 1), (1, OPACITY, 0))
    expected = shades(values, bits)[:, :, :-1] * alpha + 255 * (1 - alpha)
    assert off(jp2(values, bits, GREY if channels == 2 else SRGB, **boxes), expected) <= 2
    assert off(codestream(values, bits), expected) <= 2


def test_an_opaque_picture_is_no_background() -> None:
    """The largest sample of the opacity is opaque, not transparent."""
    for bits in range(1, 17):
        values = samples(bits, 4)
        values[:, :, 3] = (1 << bits) - 1
        decoded = codecs.decode(jp2(values, bits, cdef=COLORS_AND_OPACITY))
        assert not decoded.source.had_alpha
        assert np.abs(decoded.pixels - shades(values, bits)[:, :, :3]).max() <= 1


def test_premultiplied_colors() -> None:
    values = samples(8, 4)
    values[:, :, 3] = 128
    values[:, :, :3] //= 2
    entries = definitions((0, 0, 1), (1, 0, 2), (2, 0, 3), (3, PREMULTIPLIED, 0))
    expected = values[:, :, :3].astype(float) + 255 * (1 - 128 / 255)
    assert off(jp2(values, 8, cdef=entries), expected) <= 2


def test_the_channels_may_stand_in_another_order() -> None:
    values = samples(8, 4)
    order = [2, 3, 0, 1]  # where red, green, blue and opacity stand
    stored = np.empty_like(values)
    stored[:, :, order] = values
    entries = definitions(
        *((place, 0, color) for color, place in enumerate(order[:3], 1)), (order[3], OPACITY, 0)
    )
    alpha = values[:, :, 3:] / 255
    assert off(jp2(stored, 8, cdef=entries), values[:, :, :3] * alpha + 255 * (1 - alpha)) <= 2


@pytest.mark.parametrize("bits", [1, 4, 8])
def test_a_palette(bits: int) -> None:
    indexes = samples(bits, 1)
    colors = np.random.default_rng(0).integers(0, 256, (1 << bits, 3)).astype(np.uint8)
    palette = struct.pack(">HB", len(colors), 3) + bytes([7, 7, 7]) + colors.tobytes()
    mapping = b"".join(struct.pack(">HBB", 0, 1, column) for column in range(3))
    data = jp2(indexes, bits, pclr=palette, cmap=mapping)
    assert off(data, colors[indexes[:, :, 0]]) == 0
    assert codecs.decode(data).source.color == "palette"


def ycc(colors: npt.NDArray[Any]) -> Pixels:
    weights = np.array([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])
    return np.clip(np.rint(colors @ weights.T + (0, 128, 128)), 0, 255).astype(np.uint8)


def test_sycc_is_converted() -> None:
    colors = samples(8, 3)
    assert off(jp2(ycc(colors), 8, SYCC), colors) <= 2


# 12 × 16 pixels, red 40 + 10 x, green 60 + 12 y, blue 200 - 5 x - 3 y, as ffmpeg writes them.
SAMPLED = {
    "4:2:0": (
        "AAAADGpQICANCocKAAAAFGZ0eXBqcDIgAAAAAGpwMiAAAAAtanAyaAAAABZpaGRyAAAADAAAABAAAwgHAAAAAAAPY29s"
        "cgEAAAAAABIAAAENanAyY/9P/1EALwAAAAAAEAAAAAwAAAAAAAAAAAAAAQAAAAEAAAAAAAAAAAAAAwcBAQcCAgcCAv9S"
        "AAwAAAABAAYCAgAB/1wAFiBASEhQSEhQSEhQSEhQSEhQSEhQ/2QAEAABTGF2YzYzLjEuMTAy/5AACgAAAAAAmAAB/5PH"
        "zggHL8fOCAHPw+QCCAAAAAAAAMPnBR9QFAOggAQ/Ad8HAADB8IcB0KAIQAz/fww/A8fUBR9QFAEIBy8FfwPH1AMfUBAC"
        "Bu/A4ODwYBvYfwy9f8PlBQHQgA4KA3/D4gcB0IAM/38Cf8BhQMIANpxAjcHgoPBgHNkOPz/B8IcHg4AiG/VfDj8/Ai7/"
        "2Q=="
    ),
    "4:2:2": (
        "AAAADGpQICANCocKAAAAFGZ0eXBqcDIgAAAAAGpwMiAAAAAtanAyaAAAABZpaGRyAAAADAAAABAAAwgHAAAAAAAPY29s"
        "cgEAAAAAABIAAAEZanAyY/9P/1EALwAAAAAAEAAAAAwAAAAAAAAAAAAAAQAAAAEAAAAAAAAAAAAAAwcBAQcCAQcCAf9S"
        "AAwAAAABAAYCAgAB/1wAFiBASEhQSEhQSEhQSEhQSEhQSEhQ/2QAEAABTGF2YzYzLjEuMTAy/5AACgAAAAAApAAB/5PH"
        "zggHL8fOCAF/w+QEBX8AAAAAAADD5wUfUBQDoIAEPwHfB8fUBAWfx9QCBsHwhwHQoAhADP9/DD8Dx9QHAIQJK38Dx9AO"
        "A6DAOggCSH8DA8Dg4PBgG9h/DL1/w+QFB8QOAIgQMQ49vwVlw+IHB8IUARAPLn8OPQrfwGFAwgA2nECNweEgdCAhR0IR"
        "LVzB0KB4ICIbLVz/2Q=="
    ),
}


@pytest.mark.parametrize("file", SAMPLED.values(), ids=SAMPLED)
def test_sampled_chroma(file: str) -> None:
    y, x = np.mgrid[0:12, 0:16]
    colors = np.dstack((40 + 10 * x, 60 + 12 * y, 200 - 5 * x - 3 * y))
    data = base64.b64decode(file)
    difference = np.abs(codecs.decode(data).pixels - colors)
    assert difference.mean() < 8  # a sample of chroma stands for up to four pixels
    assert difference.max() < 24
    bare = data[data.index(b"\xff\x4f\xff\x51") :]
    with pytest.raises(ImageRejected, match="no stated colour space, sampled") as caught:
        codecs.decode(bare)
    assert caught.value.reason == "unsupported"


def test_an_icc_profile_is_applied() -> None:
    values = samples(8, 3)
    decoded = codecs.decode(jp2(values, 8, rgb_profile(swapped=True)))
    assert decoded.source.icc_profile == "swapped primaries"
    assert np.abs(decoded.pixels.astype(int) - values).max() > 40


@pytest.mark.parametrize("space", [CMYK, 14, 20, 21, 24])
def test_other_color_spaces_are_unsupported(space: int) -> None:
    with pytest.raises(ImageRejected, match=f"colour space {space}") as caught:
        codecs.decode(jp2(samples(8, 4 if space == CMYK else 3), 8, space))
    assert caught.value.reason == "unsupported"


def test_missing_tiles_are_missing_parts_of_the_picture() -> None:
    data = bytearray(jp2(samples(8, 3), 8))
    height = data.index(b"\xff\x4f\xff\x51") + 12
    data[height : height + 4] = (2 * HEIGHT).to_bytes(4, "big")  # of which the lower tile is not there
    with pytest.raises(ImageRejected) as caught:
        codecs.decode(bytes(data))
    assert caught.value.reason == "truncated"


def test_more_than_16_bits_are_unsupported() -> None:
    data = bytearray(jp2(samples(16, 1), 16, GREY))
    siz = data.index(b"\xff\x4f\xff\x51")
    data[siz + 42] = 23
    with pytest.raises(ImageRejected, match="of 24 bits") as caught:
        codecs.decode(bytes(data))
    assert caught.value.reason == "unsupported"
