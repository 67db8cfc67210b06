"""Every kind of TIFF that is let in, against the samples that were written and against other decoders."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import cv2
import imagecodecs
import numpy as np
import numpy.typing as npt
import pytest

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs.tiff import kinds
from shardmill.infra.codecs.tiff.kinds import (
    ASSOCIATED,
    BLACK_IS_ZERO,
    COLORS,
    COMPRESSIONS,
    FLOAT,
    INKS,
    INT,
    PALETTE,
    RGB,
    UINT,
    UNASSOCIATED,
    UNSPECIFIED,
    WHITE_IS_ZERO,
    YCBCR,
    Kind,
    check_kind,
)
from tests.samples.images.tiffs import Layout, dtype_of, tiff

Shades = npt.NDArray[np.float64]

HEIGHT, WIDTH = 11, 21
LAYOUTS = [
    Layout(rows, columns, big_endian, big_tiff)
    for (rows, columns), big_endian, big_tiff in itertools.product(
        ((4, 0), (16, 16)), (False, True), (False, True)
    )
]


def all_kinds() -> Iterator[Kind]:
    """Every combination of the tables, whether it is read or not."""
    more = [(), (UNSPECIFIED,), (ASSOCIATED,), (UNASSOCIATED,), (UNSPECIFIED, UNASSOCIATED), (0, 0, 0)]
    for photometric, color in COLORS.items():
        formats = [(form, bits) for form, all_bits in color.bits.items() for bits in all_bits]
        for (form, bits), extra, compression, predictor, in_planes in itertools.product(
            formats, more, COMPRESSIONS, (1, 2, 3), (False, True)
        ):
            channels = color.channels + len(extra)
            if channels > 1 or not in_planes:
                yield Kind(photometric, (bits,), form, channels, extra, compression, predictor, in_planes)


def is_read(kind: Kind) -> bool:
    try:
        check_kind(kind)
    except ImageRejected:
        return False
    return True


ALL_KINDS = [(kind, is_read(kind)) for kind in all_kinds()]
KINDS = [kind for kind, read in ALL_KINDS if read and kind.photometric != YCBCR]
KINDS += [
    Kind(YCBCR, (8,), UINT, 3, (), compression, subsampling=sampling)
    for compression, sampling in itertools.product(COMPRESSIONS, kinds.SUBSAMPLINGS)
    if is_read(Kind(YCBCR, (8,), UINT, 3, (), compression, subsampling=sampling))
]
LOSSY = (kinds.JPEG, kinds.OLD_JPEG)


def samples_of(kind: Kind) -> npt.NDArray[Any]:
    """Samples of all values of their type, which differ in every channel: [HEIGHT, WIDTH, samples]."""
    random = np.random.default_rng(kind.bits[0])
    shape = (HEIGHT, WIDTH, kind.samples)
    if kind.compression in LOSSY:  # smooth, so that JPEG hardly changes it
        ramp = np.add.outer(np.arange(HEIGHT) * 3, np.arange(WIDTH) * 5)[:, :, None]
        slopes = np.array((1.0, 0.2, -0.2, 0.5) if kind.photometric == YCBCR else (1.0, 0.6, -0.6, 0.5))
        return (120 + (ramp - 70) * slopes[: kind.samples]).astype(np.uint8)
    if kind.sample_format == FLOAT:
        return random.random(shape).astype(dtype_of(kind))
    low, high = (
        (0, 1 << kind.bits[0])
        if kind.sample_format == UINT
        else (-(1 << kind.bits[0] - 1), 1 << kind.bits[0] - 1)
    )
    samples = random.integers(low, high, shape).astype(dtype_of(kind))
    if kind.photometric == YCBCR:
        across, down = kind.subsampling
        samples[:, :, 1:] = samples[:, :, 1:].repeat(down, 0).repeat(across, 1)[:HEIGHT, :WIDTH]
    return samples


def palette_of(kind: Kind) -> npt.NDArray[np.uint16]:
    return np.random.default_rng(1).integers(256, 1 << 16, (1 << kind.bits[0], 3)).astype(np.uint16)


def range_of(kind: Kind) -> dict[int, tuple[int, list[float]]]:
    """The tags that say which samples are black and white, where the type does not."""
    if (kind.sample_format != INT and kind.bits[0] != 32) or kind.bits[0] == 8:
        return {}
    low, high = (0.0, 1.0) if kind.sample_format == FLOAT else (-30_000.0, 30_000.0)
    return {340: (12, [low] * kind.samples), 341: (12, [high] * kind.samples)}


def written(kind: Kind, layout: Layout) -> tuple[bytes, npt.NDArray[Any]]:
    samples = samples_of(kind)
    if kind.compression == kinds.OLD_JPEG:
        layout = Layout(rows=HEIGHT)  # it is one JPEG
    layout = dataclasses.replace(layout, tags=range_of(kind))
    palette = palette_of(kind) if kind.photometric == PALETTE else None
    return tiff(kind, samples, layout, palette), samples


def expected(kind: Kind, samples: npt.NDArray[Any]) -> Shades:
    """What the file shows in sRGB on white, computed from the specification in float64: [H, W, 3]."""
    color = COLORS[kind.photometric]
    if kind.sample_format == INT and kind.bits[0] == 8:
        samples = samples.view(np.uint8)
    full = float((1 << kind.bits[0]) - 1)
    low, high = (
        (0.0, 1.0)
        if kind.sample_format == FLOAT
        else (-30_000.0, 30_000.0)
        if range_of(kind)
        else (0.0, full)
    )
    shades = np.clip((samples[:, :, : color.channels].astype(float) - low) / (high - low), 0, 1)
    if kind.photometric == WHITE_IS_ZERO:
        shades = 1 - shades
    elif kind.photometric == PALETTE:
        shades = palette_of(kind)[samples[:, :, 0]] / 65535
    elif kind.photometric == INKS:
        shades = (1 - shades[:, :, :3]) * (1 - shades[:, :, 3:])
    elif kind.photometric == YCBCR:
        y, cb, cr = np.moveaxis(samples.astype(float) - (0, 128, 128), 2, 0)
        shades = np.dstack((y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb)) / 255
        shades = np.clip(shades, 0, 1)
    opacity = np.ones((HEIGHT, WIDTH, 1))
    for number, meaning in enumerate(kind.extra):
        if meaning != UNSPECIFIED:
            opacity = samples[:, :, color.channels + number :][:, :, :1] / full
            if meaning == ASSOCIATED:
                shades = np.clip(shades / np.maximum(opacity, 1e-9), 0, 1)
            break
    return np.broadcast_to(255 * (shades * opacity + 1 - opacity), (HEIGHT, WIDTH, 3))


def tolerance(kind: Kind) -> float:
    """Levels: samples of 16 bits lose their low byte, and each further step is rounded."""
    if kind.compression in LOSSY:
        return 14
    steps = 1.01 if kind.bits[0] > 8 else 0.51
    if kind.photometric in (INKS, YCBCR, PALETTE):
        steps += 1
    if any(kind.extra):
        steps += 2
    return steps


def difference(kind: Kind, layout: Layout) -> str:
    data, samples = written(kind, layout)
    try:
        pixels = codecs.decode(data).pixels
    except ImageRejected as rejected:
        return f"{kind} {layout}: {rejected}"
    if kind.photometric == kinds.CIE_LAB:
        return ""  # its colours are compared below
    off = np.abs(pixels - expected(kind, samples))
    if ASSOCIATED in kind.extra:  # nearly transparent colours are divided by little
        off = off[samples[:, :, COLORS[kind.photometric].channels] > (1 << kind.bits[0]) // 4]
    return f"{kind} {layout}: by {off.max():.1f}" if off.max() > tolerance(kind) else ""


@pytest.mark.parametrize("photometric", COLORS)
def test_every_kind_shows_what_was_written(photometric: int) -> None:
    """In one layout each; ``test_every_kind_in_every_layout`` goes through all."""
    of_color = [kind for kind in KINDS if kind.photometric == photometric]
    assert of_color
    found = [difference(kind, LAYOUTS[number % len(LAYOUTS)]) for number, kind in enumerate(of_color)]
    assert [words for words in found if words] == []


def libtiff_reads(data: bytes, kind: Kind, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """The samples as libtiff reads them."""
    samples = imagecodecs.tiff_decode(data, index=0)
    if kind.in_planes:
        samples = np.moveaxis(samples, 0, 2)
    return np.asarray(samples.reshape(shape))


# libtiff hands these over as colours.
AS_COLORS = (INKS, YCBCR)


@pytest.mark.parametrize("photometric", [number for number in COLORS if number not in AS_COLORS])
def test_libtiff_reads_the_same_samples(photometric: int) -> None:
    """It shares no code with ours above zlib and the like. So the files are what they are meant to be."""
    different = []
    for number, kind in enumerate(kind for kind in KINDS if kind.photometric == photometric):
        if kind.compression not in LOSSY:
            data, samples = written(kind, LAYOUTS[(3 * number + 1) % len(LAYOUTS)])
            if not np.array_equal(libtiff_reads(data, kind, samples.shape), samples):
                different.append(str(kind))
    assert different == []


@pytest.mark.parametrize("sampling", kinds.SUBSAMPLINGS, ids=str)
@pytest.mark.parametrize("compression", [kinds.UNCOMPRESSED, kinds.LZW, kinds.DEFLATE])
def test_opencv_sees_the_same_ycbcr(compression: int, sampling: tuple[int, int]) -> None:
    kind = Kind(YCBCR, (8,), UINT, 3, (), compression, subsampling=sampling)
    for layout in LAYOUTS:
        if layout.columns and compression == kinds.UNCOMPRESSED:
            continue  # OpenCV 5.0 expects other sizes of such tiles
        data, _ = written(kind, layout)
        seen = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
        assert np.abs(codecs.decode(data).pixels.astype(int) - seen).max() <= 1


BT709 = {529: (5, [2126, 10_000, 7152, 10_000, 722, 10_000])}
STUDIO_RANGE = {532: (5, [16, 1, 235, 1, 128, 1, 240, 1, 128, 1, 240, 1])}


@pytest.mark.parametrize("tags", [BT709, STUDIO_RANGE, BT709 | STUDIO_RANGE], ids=["709", "studio", "both"])
def test_ycbcr_has_the_weights_and_ranges_of_its_tags(tags: dict[int, tuple[int, list[int]]]) -> None:
    kind = Kind(YCBCR, (8,), UINT, 3, (), kinds.LZW)
    data = tiff(kind, samples_of(kind), Layout(tags=tags))
    seen = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    assert np.abs(codecs.decode(data).pixels.astype(int) - seen).max() <= 3  # libtiff rounds twice


def test_lab_is_converted_from_its_white_to_that_of_srgb() -> None:
    """Against the formulas of CIE 15 and IEC 61966-2-1: white is D50, adapted by Bradford's method."""
    colors = np.random.default_rng(0).integers(40, 216, (HEIGHT, WIDTH, 3))
    linear = np.where(colors <= 10, colors / 255 / 12.92, ((colors / 255 + 0.055) / 1.055) ** 2.4)
    to_xyz = [
        [0.4360747, 0.3850649, 0.1430804],
        [0.2225045, 0.7168786, 0.0606169],
        [0.0139322, 0.0971045, 0.7141733],
    ]
    xyz = linear @ np.array(to_xyz).T / (0.96422, 1, 0.82521)
    x, y, z = np.moveaxis(np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116), 2, 0)
    lab = np.dstack(((116 * y - 16) * 2.55, 500 * (x - y), 200 * (y - z))).round().astype(np.int16)
    data = tiff(Kind(kinds.CIE_LAB, (8,), UINT, 3), lab.astype(np.uint8))
    off = np.abs(codecs.decode(data).pixels - colors)
    assert off.mean() < 1  # a step of a and b is up to six levels of blue
    assert off.max() < 16


@pytest.mark.parametrize(
    "compression", [kinds.UNCOMPRESSED, kinds.LZW, kinds.DEFLATE, kinds.PACKBITS, *kinds.FAX]
)
@pytest.mark.parametrize("bits", [1, 4, 8, 12, 16])
def test_the_low_bit_may_come_first(bits: int, compression: int) -> None:
    kind = Kind(BLACK_IS_ZERO, (bits,), UINT, 1, (), compression)
    if is_read(kind):
        plain, mirrored = (written(kind, Layout(mirrored=mirrored))[0] for mirrored in (False, True))
        assert plain != mirrored
        assert np.array_equal(codecs.decode(plain).pixels, codecs.decode(mirrored).pixels)


UNREAD = [kind for kind, read in ALL_KINDS if not read]
UNREAD += [
    Kind(32803, (16,), UINT, 1),
    Kind(34892, (16,), UINT, 3),
    Kind(9, (8,), UINT, 3),
    Kind(4, (1,), UINT, 1),
    Kind(RGB, (5, 6, 5), UINT, 3),
    Kind(RGB, (32,), FLOAT, 3),
    Kind(RGB, (16,), INT, 3),
    Kind(BLACK_IS_ZERO, (24,), UINT, 1),
    Kind(BLACK_IS_ZERO, (8,), UINT, 3, (0, 0)),
    Kind(BLACK_IS_ZERO, (16,), UINT, 4, (0, 0, 0)),
    Kind(BLACK_IS_ZERO, (64,), 6, 1),
    Kind(BLACK_IS_ZERO, (8,), 4, 1),
    Kind(INKS, (8,), UINT, 5, (UNASSOCIATED,)),
    Kind(INKS, (8,), UINT, 4, ink_set=2),
    Kind(YCBCR, (8,), UINT, 3, subsampling=(4, 4)),
    Kind(PALETTE, (16,), UINT, 1),
]


def test_every_other_kind_is_unsupported_by_its_name() -> None:
    for kind in UNREAD:
        with pytest.raises(ImageRejected) as caught:
            check_kind(kind)
        assert caught.value.reason == "unsupported"
        assert all(str(bits) in caught.value.message for bits in kind.bits)
    assert len(UNREAD) > 1000


@pytest.mark.parametrize("kind", [kind for kind in UNREAD if kind.compression == 1][-14:], ids=str)
def test_a_file_of_another_kind_is_unsupported(kind: Kind) -> None:
    shape = (HEIGHT, WIDTH, kind.samples)
    data = tiff(dataclasses.replace(kind), np.zeros(shape, np.uint8), palette=np.zeros((256, 3), np.uint16))
    with pytest.raises(ImageRejected, match=r"save it as|export it") as caught:
        codecs.decode(data)
    assert caught.value.reason == "unsupported"


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_kind_in_every_layout(layout: Layout) -> None:
    assert [words for words in (difference(kind, layout) for kind in KINDS) if words] == []


# ImageMagick 6.9 takes channels of no stated meaning for opacity, and misreads these.
IMAGEMAGICK_DIFFERS = (
    lambda kind: UNSPECIFIED in kind.extra,
    lambda kind: kind.photometric == WHITE_IS_ZERO and (kind.bits[0] in (2, 4) or kind.extra),  # not inverted
    lambda kind: (
        kind.in_planes and kind.photometric in (BLACK_IS_ZERO, PALETTE)
    ),  # opacity from another plane
    lambda kind: bool(range_of(kind)),  # it does not know the tags
    lambda kind: kind.photometric == INKS and kind.compression == kinds.JPEG,  # takes the inks for inverted
    lambda kind: kind.photometric == YCBCR and kind.subsampling != (1, 1) and kind.compression != kinds.JPEG,
    lambda kind: kind.compression == kinds.OLD_JPEG,  # leaves it YCbCr
    lambda kind: kind.photometric == kinds.CIE_LAB,  # by another white
)


@pytest.mark.slow
@pytest.mark.skipif(
    which("convert") is None, reason="ImageMagick is not installed: kinds are NOT compared with it"
)
def test_imagemagick_sees_the_same(tmp_path: Path) -> None:
    different = []
    for number, kind in enumerate(KINDS):
        if not any(differs(kind) for differs in IMAGEMAGICK_DIFFERS):
            data, _ = written(kind, LAYOUTS[(5 * number + 2) % len(LAYOUTS)])
            (tmp_path / "a.tif").write_bytes(data)
            flat = ["-background", "white", "-alpha", "remove", "-colorspace", "sRGB", "-depth", "8"]
            command = ["convert", str(tmp_path / "a.tif[0]"), *flat, "ppm:-"]
            seen = subprocess.run(command, check=True, capture_output=True).stdout
            pixels = cv2.imdecode(np.frombuffer(seen, np.uint8), cv2.IMREAD_COLOR_RGB)
            if np.abs(codecs.decode(data).pixels.astype(int) - pixels).max() > 3:
                different.append(str(kind))
    assert different == []
