"""Samples of any depth and number of channels, against what was written and against other decoders."""

from __future__ import annotations

import dataclasses
import io
import itertools
from collections.abc import Iterator
from typing import Any

import cv2
import imagecodecs
import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from PIL import Image, ImageCms

from shardmill.infra.codecs import ImageRejected, decode
from shardmill.infra.codecs.deep import decode_deep
from shardmill.infra.codecs.samples import DeepWanted
from shardmill.infra.codecs.tiff import kinds
from shardmill.infra.codecs.tiff.kinds import (
    ASSOCIATED,
    BLACK_IS_ZERO,
    COLORS,
    COMPRESSIONS,
    FLOAT,
    INT,
    RGB,
    UINT,
    UNASSOCIATED,
    UNSPECIFIED,
    WHITE_IS_ZERO,
    Kind,
    check_samples,
    is_shades,
)
from tests.samples.images.colors import BT2020, P3, Curve, hlg, pq, shown, srgb_curve, with_chunks
from tests.samples.images.forms import display_p3_profile
from tests.samples.images.tiffs import Layout, dtype_of, tiff

Samples = npt.NDArray[Any]
KEEP = DeepWanted("keep", "keep", 1 << 24, (255, 255, 255))
HEIGHT, WIDTH = 7, 19
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
LAYOUTS = [
    Layout(rows, columns, big_endian, big_tiff)
    for (rows, columns), big_endian, big_tiff in itertools.product(
        ((4, 0), (16, 16)), (False, True), (False, True)
    )
]


def wanted(depth: Any = "keep", channels: Any = "keep") -> DeepWanted:
    return dataclasses.replace(KEEP, depth=depth, channels=channels)


def all_kinds() -> Iterator[Kind]:
    """Combinations of what may vary; those that are no shades or are refused too."""
    formats = [(UINT, bits) for bits in (1, 2, 4, 8, 10, 12, 14, 16, 24, 32, 64)]
    formats += [(INT, bits) for bits in (8, 16, 32, 64)] + [(FLOAT, bits) for bits in (16, 24, 32, 64)]
    more = [(), (UNSPECIFIED,), (UNASSOCIATED,), (ASSOCIATED,), (UNSPECIFIED,) * 4]
    lossless = [number for number, one in COMPRESSIONS.items() if not one.lossy and not one.bits]
    for photometric, (form, bits), extra, compression, predictor, in_planes in itertools.product(
        (WHITE_IS_ZERO, BLACK_IS_ZERO, RGB), formats, more, lossless, (1, 2, 3), (False, True)
    ):
        channels = COLORS[photometric].channels + len(extra)
        if channels > 1 or not in_planes:
            yield Kind(photometric, (bits,), form, channels, extra, compression, predictor, in_planes)


def is_read(kind: Kind) -> bool:
    try:
        check_samples(kind)
    except ImageRejected:
        return False
    return True


KINDS = [kind for kind in all_kinds() if is_shades(kind) and is_read(kind)]


def samples_of(kind: Kind) -> Samples:
    random, shape = np.random.default_rng(kind.bits[0]), (HEIGHT, WIDTH, kind.samples)
    if kind.sample_format == FLOAT:
        return random.normal(size=shape).astype(dtype_of(kind))
    low = 0 if kind.sample_format == UINT else -(1 << kind.bits[0] - 1)
    return random.integers(low, low + (1 << kind.bits[0]), shape).astype(dtype_of(kind))


def kept(kind: Kind, samples: Samples) -> Samples:
    """What is stored of samples where depth and channels are kept."""
    numbers = samples.copy()
    if kind.photometric == WHITE_IS_ZERO:
        numbers[:, :, 0] = ((1 << kind.bits[0]) - 1) - samples[:, :, 0]
    return numbers if numbers.dtype in (np.uint8, np.uint16) else numbers.astype(np.float32)


def check_kinds(chosen: list[Kind]) -> None:
    """Check that kinds have the numbers that were written, and that libtiff reads the same."""
    different = []
    for number, kind in enumerate(chosen):
        samples = samples_of(kind)
        data = tiff(kind, samples, LAYOUTS[number % len(LAYOUTS)])
        pixels, expected = decode_deep(data, KEEP).pixels, kept(kind, samples)
        read = imagecodecs.tiff_decode(data, index=0)
        read = np.moveaxis(read, 0, 2) if kind.in_planes else read
        if not np.array_equal(read.reshape(samples.shape), samples):
            different.append(f"{kind}: libtiff")
        if pixels.dtype != expected.dtype or not np.array_equal(pixels, expected):
            different.append(str(kind))
    assert different == []


def test_kinds_of_tiff_have_the_numbers_that_were_written() -> None:
    """Of each colour and type, with each compression; ``test_every_kind_of_tiff`` goes through all."""
    check_kinds(KINDS[::11])


@pytest.mark.slow
def test_every_kind_of_tiff() -> None:
    assert len(KINDS) > 3000
    check_kinds(KINDS)


def test_every_other_kind_of_shades_is_unsupported_by_its_name() -> None:
    unread = [kind for kind in all_kinds() if is_shades(kind) and not is_read(kind)]
    assert {kind.bits[0] for kind in unread} >= {24, 64}
    for kind in unread:
        with pytest.raises(ImageRejected, match=f"{kind.bits[0]}-bit samples") as caught:
            check_samples(kind)
        assert caught.value.reason == "unsupported"


def png(pixels: Samples) -> bytes:
    return bytes(imagecodecs.png_encode(pixels))


def deep(data: bytes, depth: Any = "keep", channels: Any = "keep") -> Samples:
    return decode_deep(data, wanted(depth, channels)).pixels


def numbers(dtype: str, channels: int) -> Samples:
    return (
        np.random.default_rng(channels).integers(0, np.iinfo(dtype).max + 1, (9, 7, channels)).astype(dtype)
    )


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_a_png_keeps_its_samples(dtype: str, channels: int) -> None:
    pixels = numbers(dtype, channels)
    read = deep(png(pixels))
    assert read.dtype == dtype
    assert np.array_equal(read, pixels)
    if channels != 2:  # OpenCV makes four of them
        seen = cv2.imdecode(np.frombuffer(png(pixels), np.uint8), cv2.IMREAD_UNCHANGED).reshape(pixels.shape)
        assert np.array_equal(read, seen[:, :, [2, 1, 0, 3][:channels]] if channels > 1 else seen)


@pytest.mark.parametrize("depth", [8, 16])
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_depths_of_whole_numbers_are_shades(dtype: str, depth: int) -> None:
    pixels = numbers(dtype, 3)
    white = (1 << depth) - 1
    exact = pixels.astype(np.float64) * white / np.iinfo(dtype).max
    off = np.abs(deep(png(pixels), depth) - exact)
    # 8 bits are the high byte of 16, as in every other image that is stored.
    assert off.max() <= (1 if (dtype, depth) == ("uint16", 8) else 0.5)


def test_floating_point_keeps_the_numbers_of_the_file() -> None:
    assert np.array_equal(deep(png(numbers("uint16", 3)), "float32"), numbers("uint16", 3).astype(np.float32))
    double = np.random.default_rng(0).normal(size=(6, 5, 2))
    assert np.array_equal(deep(written(double), "float32"), double.astype(np.float32))


def written(pixels: Samples, **options: Any) -> bytes:
    """A TIFF of tifffile."""
    stream = io.BytesIO()
    options = (
        {"photometric": "minisblack"} | ({"planarconfig": "contig"} if pixels.shape[2] > 1 else {}) | options
    )
    tifffile.imwrite(stream, pixels, **options)
    return stream.getvalue()


def test_shades_of_other_types_need_a_range() -> None:
    """As images of 8 bits do: see the tests of TIFF."""
    fraction = np.random.default_rng(0).random((6, 5, 4)).astype(np.float32)
    assert np.abs(deep(written(fraction), 16) - fraction.astype(np.float64) * 65535).max() <= 0.5
    for pixels in (fraction * 2, (fraction * 100).astype(np.int16), (fraction * 100).astype(np.uint32)):
        with pytest.raises(ImageRejected, match="depth to float32"):
            deep(written(pixels), 16)
    stated = written(
        (fraction * 100).astype(np.int16)[:, :, :1],
        extratags=[(340, 8, 1, -100, True), (341, 8, 1, 100, True)],
    )
    exact = ((fraction[:, :, :1] * 100).astype(np.int16) + 100.0) * 65535 / 200
    assert np.abs(deep(stated, 16) - exact).max() <= 0.5


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("depth", ["keep", "float32", 16])
def test_numbers_that_are_not_finite_are_counted_and_refused(depth: Any, value: float) -> None:
    pixels = np.full((6, 5, 2), 0.5)
    pixels[1, 2, 1] = pixels[3, 3, 0] = value
    with pytest.raises(ImageRejected) as caught:
        deep(written(pixels), depth)
    if (value, depth) != (1e300, 16):  # finite shades beyond the range
        assert (caught.value.reason, caught.value.message[:16]) == ("not_finite", "2 of 60 samples ")


def test_colours_become_grey_and_grey_becomes_colours() -> None:
    pixels = numbers("uint16", 3)
    luma = pixels.astype(np.float64) @ np.array([0.299, 0.587, 0.114])
    assert np.abs(deep(png(pixels), 16, 1)[:, :, 0] - luma).max() <= 0.5
    grey = numbers("uint16", 1)
    assert np.array_equal(deep(png(grey), 16, 3), grey.repeat(3, axis=2))


@pytest.mark.parametrize("extra", [UNASSOCIATED, ASSOCIATED])
def test_opacity_is_laid_on_the_background_or_kept(extra: int) -> None:
    pixels = numbers("uint16", 4)
    if extra == ASSOCIATED:
        pixels[:, :, :3] = pixels[:, :, :3] * (pixels[:, :, 3:] / 65535)
    data = tiff(Kind(RGB, (16,), UINT, 4, (extra,)), pixels)
    opacity = pixels[:, :, 3:] / 65535
    colours = pixels[:, :, :3] * (1 if extra == ASSOCIATED else opacity)
    behind = dataclasses.replace(wanted(16, 3), background=(255, 128, 0))
    exact = colours + (1 - opacity) * np.array([255, 128, 0]) * 257
    read = decode_deep(data, behind)
    assert read.source.had_alpha
    assert np.abs(read.pixels - exact).max() <= 0.5
    assert np.array_equal(deep(data, 16, 4), pixels)
    assert (
        np.abs(
            decode_deep(png(numbers("uint16", 2)), wanted(16, 1)).pixels[:, :, 0]
            - (numbers("uint16", 2)[:, :, 0] * (a := numbers("uint16", 2)[:, :, 1] / 65535) + (1 - a) * 65535)
        ).max()
        <= 0.5
    )


@pytest.mark.parametrize(("given", "channels"), [(5, 3), (5, 1), (3, 5), (4, 2), (2, 5)])
def test_other_channels_are_refused_with_both_numbers(given: int, channels: int) -> None:
    with pytest.raises(
        ImageRejected, match=f"it has {given} channels .* image.channels is {channels}"
    ) as caught:
        deep(written(numbers("uint16", given)), 16, channels)
    assert caught.value.reason == "channels"


def test_planes_and_pixels_of_five_channels_are_the_same() -> None:
    pixels = numbers("uint16", 5)
    planes = written(np.moveaxis(pixels, 2, 0), planarconfig="separate", compression="zlib", predictor=True)
    assert np.array_equal(deep(planes), pixels)
    assert decode_deep(planes, KEEP).source.color == "grey+4 16-bit"


def test_other_formats_are_8_bits() -> None:
    pixels = cv2.GaussianBlur(numbers("uint8", 3), (0, 0), 3)
    for name, options in (("JPEG", {"quality": 95}), ("WEBP", {"lossless": True}), ("BMP", {}), ("GIF", {})):
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, name, **options)
        data = stream.getvalue()
        assert np.array_equal(deep(data, 16), decode(data).pixels.astype(np.uint16) * 257)
        assert np.array_equal(deep(data, "float32"), decode(data).pixels.astype(np.float32))
    stream = io.BytesIO()
    Image.fromarray(pixels[:, :, 0]).save(stream, "JPEG")
    assert deep(stream.getvalue(), 16).shape == (9, 7, 1)


def jpeg_of_12_bits() -> bytes:
    return bytes(imagecodecs.jpeg_encode(numbers("uint16", 1)[:, :, 0] >> 4, bitspersample=12))


def tiff_of(*kind: Any, **options: Any) -> bytes:
    made = Kind(*kind, **options)
    palette = numbers("uint16", 3)[0] if made.photometric == kinds.PALETTE else None
    return tiff(made, numbers("uint16" if made.bits[0] > 8 else "uint8", made.samples), palette=palette)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (lambda: imagecodecs.avif_encode(numbers("uint16", 3) >> 6, bitspersample=10), "AVIF file of more"),
        (lambda: imagecodecs.jpeg2k_encode(numbers("uint16", 3)), "JPEG 2000 file of more than 8 bits"),
        (jpeg_of_12_bits, "JPEG of 12 bits"),
        (lambda: tiff_of(kinds.INKS, (16,), UINT, 4), "TIFF file of more than 8 bits"),
        (lambda: tiff_of(kinds.PALETTE, (16,), UINT, 1), "PALETTE"),
        (lambda: tiff_of(kinds.YCBCR, (8,), UINT, 3, in_planes=True, subsampling=(2, 2)), "in planes"),
    ],
    ids=["avif", "jpeg2000", "jpeg", "cmyk", "palette", "planes"],
)
def test_deeper_files_that_are_not_read_are_refused_by_name(data: Any, words: str) -> None:
    with pytest.raises(ImageRejected, match=words) as caught:
        deep(bytes(data()), 16)
    assert caught.value.reason == "unsupported"


@pytest.mark.parametrize("cut", [0.3, 0.9])
def test_a_file_that_ends_early_is_truncated(cut: float) -> None:
    for data in (png(numbers("uint16", 3)), written(numbers("uint16", 5))):
        with pytest.raises(ImageRejected) as caught:
            deep(data[: int(len(data) * cut)], 16)
        assert caught.value.reason in ("truncated", "corrupt")


def test_a_png_without_pixel_data_is_corrupt() -> None:
    whole = png(numbers("uint16", 3))
    with pytest.raises(ImageRejected, match="it holds no pixel data") as caught:
        deep(whole[:33] + whole[-12:], 16)
    assert caught.value.reason == "corrupt"


def test_samples_that_take_too_much_memory_are_refused_before_decoding() -> None:
    small = dataclasses.replace(KEEP, max_pixels=9 * 7)
    assert decode_deep(png(numbers("uint8", 3)), dataclasses.replace(small, max_pixels=9 * 7 * 2)).pixels.size
    with pytest.raises(ImageRejected, match="its samples take 630 bytes"):
        decode_deep(written(numbers("uint16", 5)), small)


def test_orientation_turns_samples() -> None:
    pixels = numbers("uint16", 5)
    read = decode_deep(written(pixels, extratags=[(274, 3, 1, 6, True)]), KEEP)
    assert np.array_equal(read.pixels, np.rot90(pixels, -1))


@pytest.mark.parametrize("depth", [8, 16])
def test_colours_of_16_bits_are_converted_to_srgb(depth: int) -> None:
    """Against the formulas of the standards: a profile and a statement give the same samples."""
    pixels = np.random.default_rng(0).integers(0, 65536, (16, 16, 4), np.uint16)
    pixels[:, :, 3] = 65535
    exact = shown(pixels[:, :, :3] / 65535, P3, srgb_curve) * 257
    by_profile = written(pixels, photometric="rgb", extrasamples=[2], iccprofile=display_p3_profile())
    by_statement = with_chunks(png(pixels[:, :, :3].copy()), cICP=bytes((12, 13, 0, 1)))
    for data, channels in ((by_profile, 3), (by_profile, 4), (by_statement, 3)):
        if depth == 8 and channels == 3:
            continue  # an image of 8 bits in RGB
        read = decode_deep(data, wanted(depth, channels))
        off = np.abs(read.pixels[:, :, :3] * (257.0 if depth == 8 else 1.0) - exact)
        assert off.max() <= (257 if depth == 8 else 24)
        assert read.source.icc_profile
    for number in ("keep", "float32"):
        with pytest.raises(ImageRejected, match="'Display P3', which are converted at image"):
            decode_deep(by_profile, wanted(number))


@pytest.mark.parametrize(("curve", "formula"), [(16, pq), (18, hlg)])
def test_hdr_of_16_bits_is_brought_to_srgb_or_refused(curve: int, formula: Curve) -> None:
    pixels = np.random.default_rng(0).integers(0, 65536, (16, 16, 3), np.uint16)
    data = with_chunks(png(pixels), cICP=bytes((9, curve, 0, 1)))
    exact = shown(pixels / 65535, BT2020, formula) * 257
    assert np.abs(deep(data, 16) - exact).max() <= 24
    with pytest.raises(ImageRejected, match=r"image\.hdr"):
        decode_deep(data, dataclasses.replace(wanted(16), hdr="quarantine"))
    with pytest.raises(ImageRejected, match=r"converted at image\.depth = 8"):
        decode_deep(data, wanted("float32"))


def test_premultiplied_colours_are_not_converted() -> None:
    pixels = numbers("uint16", 3)
    assert np.array_equal(deep(written(pixels, photometric="rgb", iccprofile=SRGB), 16), pixels)
    of_opacity = written(
        numbers("uint16", 4), photometric="rgb", extrasamples=[1], iccprofile=display_p3_profile()
    )
    with pytest.raises(ImageRejected, match="multiplied by their opacity"):
        deep(of_opacity, 16, 4)
