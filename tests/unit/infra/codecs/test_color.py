"""Colour, transparency and depth: what every kind of pixel becomes in sRGB of 8 bits."""

from __future__ import annotations

import io
import struct
import threading
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected, Pixels
from shardmill.infra.codecs.color.icc import conversion_by_profile
from tests.samples.images.forms import gradient, grey_profile, png_chunk, rgb_profile, saved

SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
SWAPPED = rgb_profile(swapped=True)
LINEAR_GREY = grey_profile(gamma=1.0)


def reference_in_srgb(pixels: Pixels, icc: bytes, mode: str = "RGB") -> Pixels:
    """The pixels as Little CMS converts them at its highest precision (in float, unoptimised)."""
    profile = ImageCms.ImageCmsProfile(io.BytesIO(icc))
    flags = ImageCms.Flags.BLACKPOINTCOMPENSATION | ImageCms.Flags.NOOPTIMIZE | ImageCms.Flags.HIGHRESPRECALC
    intent = ImageCms.Intent.RELATIVE_COLORIMETRIC
    transform = ImageCms.buildTransform(profile, ImageCms.createProfile("sRGB"), mode, "RGB", intent, flags)
    return np.asarray(transform.apply(Image.fromarray(pixels if mode == "RGB" else pixels[:, :, 0])))


@pytest.mark.parametrize(
    ("format_", "options"),
    [
        ("JPEG", {"quality": 100, "subsampling": 0}),
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
        ("TIFF", {}),
        ("AVIF", {"quality": 100, "subsampling": "4:4:4"}),
    ],
)
def test_a_profile_is_converted_to_srgb(format_: str, options: dict[str, Any]) -> None:
    data = saved(Image.fromarray(gradient()), format_, icc_profile=SWAPPED, **options)
    decoded = codecs.decode(data)
    expected = reference_in_srgb(gradient(), SWAPPED)
    assert decoded.source.icc_profile == "swapped primaries"
    assert np.abs(decoded.pixels.astype(int) - expected).mean() < 2
    assert np.abs(gradient().astype(int) - expected).mean() > 20  # so the profile does something
    grey = codecs.decode(data, 1).pixels[:, :, 0]
    assert np.abs(grey.astype(int) - np.asarray(Image.fromarray(decoded.pixels).convert("L"))).max() <= 1


@pytest.mark.parametrize("icc", [SRGB, b"", b"rubbish" * 40, SWAPPED[:200], LINEAR_GREY])
def test_srgb_and_what_is_no_profile_for_it_leave_the_pixels_alone(icc: bytes) -> None:
    data = saved(Image.fromarray(gradient()), "PNG", icc_profile=icc)
    decoded = codecs.decode(data)
    assert decoded.source.icc_profile is None
    assert np.array_equal(decoded.pixels, gradient())


@pytest.mark.parametrize("format_", ["JPEG", "PNG", "TIFF"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_grey_profile(format_: str, channels: int) -> None:
    ramp = np.tile(np.arange(0, 256, 4, dtype=np.uint8), (16, 1))
    options: dict[str, Any] = {"quality": 100} if format_ == "JPEG" else {}
    data = saved(Image.fromarray(ramp), format_, icc_profile=LINEAR_GREY, **options)
    decoded = codecs.decode(data, channels)
    expected = 255 * np.where(ramp <= 0, 0, 1.055 * (ramp / 255.0) ** (1 / 2.4) - 0.055)
    assert decoded.source.icc_profile == "grey of gamma 1.0"
    assert np.abs(decoded.pixels[:, 4:, 0] - expected[:, 4:]).max() < 3
    assert decoded.pixels.shape[2] == channels


def test_profiles_are_converted_by_several_threads_at_once() -> None:
    data = saved(Image.fromarray(gradient(200, 200)), "PNG", icc_profile=SWAPPED)
    expected = codecs.decode(data).pixels
    wrong: list[int] = []

    def decode_often() -> None:
        wrong.extend(number for number in range(20) if (codecs.decode(data).pixels != expected).any())

    threads = [threading.Thread(target=decode_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_profile_in_jpeg_2000() -> None:
    plain = saved(Image.fromarray(gradient()), "JPEG2000", irreversible=False)
    at = plain.index(b"colr") - 4
    size = int.from_bytes(plain[at : at + 4], "big")
    profile = struct.pack(">I4sBBB", 11 + len(SWAPPED), b"colr", 2, 0, 0) + SWAPPED
    data = plain[:at] + profile + plain[at + size :]
    header = data.index(b"jp2h") - 4
    longer = int.from_bytes(data[header : header + 4], "big") + len(profile) - size
    decoded = codecs.decode(data[:header] + struct.pack(">I", longer) + data[header + 4 :])
    assert decoded.source.icc_profile == "swapped primaries"
    assert np.abs(decoded.pixels.astype(int) - reference_in_srgb(gradient(), SWAPPED)).max() <= 2


def test_a_monstrous_profile_is_none() -> None:
    assert conversion_by_profile(SWAPPED + bytes(5 << 20), "RGB") == (None, "ICC profile too long")


def test_a_conversion_is_made_once_a_profile() -> None:
    first, second = (conversion_by_profile(icc, "RGB")[0] for icc in (SWAPPED, bytes(bytearray(SWAPPED))))
    assert first is second is not None


@pytest.mark.parametrize("format_", ["JPEG", "TIFF"])
def test_cmyk_without_a_profile(format_: str) -> None:
    inks = np.zeros((16, 16, 4), np.uint8)
    inks[:8, :8] = (255, 0, 0, 0)
    inks[8:, :8] = (0, 0, 0, 255)
    inks[8:, 8:] = (0, 128, 0, 0)
    image = Image.frombytes("CMYK", (16, 16), inks.tobytes())
    decoded = codecs.decode(saved(image, format_, **({"quality": 100} if format_ == "JPEG" else {})))
    assert decoded.source.color == "CMYK"
    for place, color in (((2, 2), (0, 255, 255)), ((12, 2), (0, 0, 0)), ((12, 12), (255, 127, 255))):
        assert np.abs(decoded.pixels[place].astype(int) - color).max() <= 4


def alpha_image(mode: str) -> Image.Image:
    """Left half clear, right half opaque, of one colour: (200, 40, 40), or grey 120."""
    alpha = Image.new("L", (16, 8), 0)
    alpha.paste(255, (8, 0, 16, 8))
    image = Image.new("RGB", (16, 8), (200, 40, 40)) if mode == "RGBA" else Image.new("L", (16, 8), 120)
    image.putalpha(alpha)
    return image


@pytest.mark.parametrize(
    ("mode", "format_", "options"),
    [
        ("RGBA", "PNG", {}),
        ("LA", "PNG", {}),
        ("RGBA", "WEBP", {"lossless": True, "exact": True}),
        ("RGBA", "TIFF", {}),
        ("RGBA", "AVIF", {"quality": 100}),
        ("RGBA", "JPEG2000", {}),
        ("RGBA", "GIF", {}),
    ],
)
@pytest.mark.parametrize("background", [(255, 255, 255), (10, 200, 30)])
def test_transparency_shows_the_background(
    mode: str, format_: str, options: dict[str, Any], background: tuple[int, int, int]
) -> None:
    decoded = codecs.decode(saved(alpha_image(mode), format_, **options), background=background)
    solid = (200, 40, 40) if mode == "RGBA" else (120, 120, 120)
    assert decoded.source.had_alpha
    assert np.abs(decoded.pixels[4, 2].astype(int) - background).max() <= 1
    assert np.abs(decoded.pixels[4, 13].astype(int) - solid).max() <= 6


def test_opaque_alpha_is_no_transparency() -> None:
    image = Image.fromarray(gradient())
    image.putalpha(255)
    decoded = codecs.decode(saved(image, "PNG"), background=(0, 0, 0))
    assert (decoded.source.had_alpha, decoded.source.color) == (False, "RGBA")
    assert np.array_equal(decoded.pixels, gradient())


def png(samples: np.ndarray[Any, Any], bits: int, color_type: int, **chunks: bytes) -> bytes:
    """A PNG of rows of samples as they are to stand in the file; ``chunks`` come before the picture."""
    packed = samples.astype(">u2").view(np.uint8) if bits == 16 else samples.astype(np.uint8)
    height = samples.shape[0]
    width = samples.shape[1] if color_type in (0, 3) else samples.shape[1] // (3 if color_type == 2 else 2)
    if bits < 8:
        ones = np.unpackbits(samples.astype(np.uint8)[:, :, None], axis=2)[:, :, 8 - bits :]
        packed = np.packbits(ones.reshape(height, -1), axis=1)
    rows = b"".join(b"\x00" + row.tobytes() for row in packed.reshape(height, -1))
    header = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, 0)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            png_chunk(b"IHDR", header),
            *(png_chunk(name.encode(), content) for name, content in chunks.items()),
            png_chunk(b"IDAT", zlib.compress(rows)),
            png_chunk(b"IEND", b""),
        )
    )


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_grey_pngs_of_every_depth_run_from_black_to_white(bits: int) -> None:
    top = (1 << bits) - 1
    samples = np.linspace(0, top, 32).astype(np.int64)[None, :].repeat(4, axis=0)
    decoded = codecs.decode(png(samples, bits, 0), 1)
    assert decoded.source.color == ("grey" if bits == 8 else f"grey {bits}-bit")
    assert np.abs(decoded.pixels[:, :, 0] - samples * 255 / top).max() <= (0.5 if bits <= 8 else 1)


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_the_transparent_sample_of_a_grey_png(bits: int) -> None:
    top = (1 << bits) - 1
    samples = np.array([[0, top], [top, 0]])
    data = png(samples, bits, 0, tRNS=struct.pack(">H", top))
    decoded = codecs.decode(data, background=(7, 8, 9))
    assert decoded.source.had_alpha
    assert decoded.pixels.tolist() == [[[0, 0, 0], [7, 8, 9]], [[7, 8, 9], [0, 0, 0]]]


@pytest.mark.parametrize("bits", [8, 16])
def test_the_transparent_color_of_an_rgb_png(bits: int) -> None:
    scale = 1 if bits == 8 else 257
    samples = np.array([[10, 20, 30, 90, 20, 30]]) * scale
    data = png(samples, bits, 2, tRNS=struct.pack(">HHH", *(value * scale for value in (10, 20, 30))))
    decoded = codecs.decode(data, background=(7, 8, 9))
    assert decoded.source.had_alpha
    assert decoded.pixels.tolist() == [[[7, 8, 9], [90, 20, 30]]]


@pytest.mark.parametrize(
    ("samples", "significant", "white"),
    [
        ([0, 1001, 4095], 12, 4095),  # as no specification allows, and cameras of laboratories write
        ([0, 0x3E83, 0xFFFF], 12, 65535),  # scaled to 16 bits, as the specification demands
        ([0, 160, 800], 12, 65535),  # a dark picture of 12 bits, scaled
        ([0, 1001, 4095], 16, 65535),
    ],
)
def test_png_samples_that_fill_fewer_bits(samples: list[int], significant: int, white: int) -> None:
    decoded = codecs.decode(png(np.array([samples]), 16, 0, sBIT=bytes([significant])), 1)
    expected = [sample >> 8 if white == 65535 else round(sample * 255 / white) for sample in samples]
    assert decoded.pixels[0, :, 0].tolist() == expected


def tiff(samples: np.ndarray[Any, Any], **tags: Any) -> bytes:
    numbers = {"max_sample": 281, "s_min": 340, "s_max": 341}
    return saved(Image.fromarray(samples), "TIFF", tiffinfo={numbers[name]: tags[name] for name in tags})


@pytest.mark.parametrize(
    ("samples", "tags", "expected"),
    [
        (np.array([[0, 32768, 65535]], np.uint16), {}, [0, 128, 255]),
        (np.array([[0, 2048, 4095]], np.uint16), {"max_sample": 4095}, [0, 128, 255]),
        (np.array([[0, 2048, 4000]], np.uint16), {"max_sample": 4000}, [0, 8, 15]),  # a statistic, no depth
        (np.array([[0, 0.5, 1]], np.float32), {}, [0, 128, 255]),
        (np.array([[-1, 0, 3]], np.float32), {"s_min": -1.0, "s_max": 3.0}, [0, 64, 255]),
        (np.array([[0, 500, 1000]], np.int32), {"s_min": 0, "s_max": 1000}, [0, 128, 255]),
        (np.array([[-1, 0, 3]], np.float32), {}, None),
        (np.array([[0, np.nan, 1]], np.float32), {}, None),
        (np.array([[0, 500, 1000]], np.int32), {}, None),
    ],
)
def test_deep_tiffs(samples: np.ndarray[Any, Any], tags: dict[str, Any], expected: list[int] | None) -> None:
    if expected is None:
        with pytest.raises(ImageRejected, match="SMaxSampleValue") as caught:
            codecs.decode(tiff(samples, **tags))
        assert caught.value.reason == "unsupported"
    else:
        assert codecs.decode(tiff(samples, **tags), 1).pixels[0, :, 0].tolist() == expected


def test_white_may_be_zero_at_any_depth() -> None:
    samples = np.array([[0, 0x4000, 0xFFFF]], np.uint16)
    data = saved(Image.fromarray(samples), "TIFF")
    at = data.index(struct.pack("<HHI", 262, 3, 1)) + 8
    inverted = data[:at] + b"\x00" + data[at + 1 :]
    assert codecs.decode(inverted, 1).pixels[0, :, 0].tolist() == [255, 191, 0]


def test_sixteen_bits_of_colour_keep_the_high_byte() -> None:
    samples = np.array([[0, 0x80FF, 0xFFFF, 0x0100, 0x4000, 0xC000]])
    decoded = codecs.decode(png(samples, 16, 2))
    assert decoded.source.color == "RGB 16-bit"
    assert decoded.pixels.tolist() == [[[0, 0x80, 0xFF], [0x01, 0x40, 0xC0]]]
