"""Each format with each way to state colours, against float64 formulas of the standards, in one table.

The formulas stand in ``tests/samples/images/colors.py``. Errors are in grey levels: 1 where Little CMS or the
tone mapping rounds once, more where the file itself was rounded on its way (noted at the row).
"""

from __future__ import annotations

import io
import struct
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import imagecodecs
import numpy as np
import numpy.typing as npt
import pytest
import tifffile
from PIL import Image, ImageCms

from shardmill.infra.codecs import decode
from tests.samples.images import colors as std
from tests.samples.images.colors import saved, with_chunks
from tests.samples.images.forms import display_p3_profile, grey_profile, rgb_profile
from tests.unit.infra.codecs.test_color import png as png_of_rows

LEVELS = np.array([0, 18, 90, 163, 220, 255], np.uint8)
CUBE = np.stack(np.meshgrid(LEVELS, LEVELS, LEVELS), axis=-1).reshape(12, 18, 3)
GREYS = np.repeat(np.arange(0, 256, 3, dtype=np.uint8)[None], 4, axis=0)


def deep_cube(bits: int = 16) -> npt.NDArray[np.uint16]:
    """The cube of colours in more bits, with low bits that are no copy of the high ones."""
    top = (1 << bits) - 1
    return np.minimum(np.rint(CUBE / 255.0 * top) + 3 * (CUBE < 250), top).astype(np.uint16)


def png(*codes: int, samples: npt.NDArray[np.uint8] = CUBE, **chunks: bytes) -> bytes:
    """A PNG of 8 bits, with cICP if there are codes."""
    return with_chunks(saved(samples), **({"cICP": bytes(codes)} if codes else {}), **chunks)


def png16(*codes: int, **chunks: bytes) -> bytes:
    """A PNG of 16 bits, with cICP if there are codes."""
    cicp = {"cICP": bytes(codes)} if codes else {}
    return png_of_rows(deep_cube().reshape(12, -1), 16, 2, **cicp, **chunks)


def avif(primaries: int, curve: int, bits: int = 8, matrix: int = 0) -> bytes:
    samples = CUBE if bits == 8 else deep_cube(bits)
    return imagecodecs.avif_encode(
        samples, level=100, bitspersample=bits, pixelformat="444",
        primaries=primaries, transfer=curve, matrix=matrix,
    )  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A file of the table, the colours that it states, and what its record is to say of them (``told``)."""

    name: str
    data: Callable[[], bytes]
    primaries: tuple[float, ...]
    curve: std.Curve
    told: str | None
    most: float = 1.0  # largest error (grey levels)
    bits: int = 8
    grey: bool = False

    @property
    def signal(self) -> std.Floats:
        if self.bits > 8:
            return deep_cube(self.bits) / ((1 << self.bits) - 1)
        return (np.dstack([GREYS] * 3) if self.grey else CUBE) / 255


def narrow(bits: int) -> std.Curve:
    """The curve of sRGB for samples of narrow range: on the scale of 8 bits, black is 16 and white 235."""
    unit, top = 1 << (bits - 8), (1 << bits) - 1
    return lambda signal: std.srgb_curve(np.clip((signal * top - 16 * unit) / (219 * unit), 0, 1))


P3, BT2020, SRGB, CURVE = std.P3, std.BT2020, std.SRGB, std.srgb_curve
TABLE = [
    Row("png P3", lambda: png(12, 13, 0, 1), P3, CURVE, "Display P3 (cICP)"),
    Row("png P3, curve of BT.709", lambda: png(12, 1, 0, 1), P3, CURVE, "Display P3 (cICP)"),
    Row("png P3, curve unspecified", lambda: png(12, 2, 0, 1), P3, CURVE, "Display P3 (cICP)"),
    Row("png P3, curve reserved", lambda: png(12, 77, 0, 1), P3, CURVE, "Display P3 (cICP)"),
    Row("png BT.2020", lambda: png(9, 14, 0, 1), BT2020, CURVE, "BT.2020 (cICP)"),
    Row("png 525 lines", lambda: png(6, 6, 0, 1), std.SMPTE_C, CURVE, "BT.601 of 525 lines (cICP)"),
    Row("png 625 lines", lambda: png(5, 13, 0, 1), std.EBU, CURVE, "BT.601 of 625 lines (cICP)"),
    Row("png DCI-P3", lambda: png(11, 17, 0, 1), std.DCI,
        lambda v: np.minimum(52.37 / 48 * v**2.6, 1), "DCI-P3 SMPTE ST 428-1 (cICP)"),
    Row("png film", lambda: png(8, 7, 0, 1), std.FILM, std.smpte_240m, "generic film SMPTE 240M (cICP)"),
    Row("png gamma 2.8", lambda: png(1, 5, 0, 1), SRGB, std.power(2.8), "BT.709 gamma 2.8 (cICP)"),
    Row("png logarithmic", lambda: png(1, 9, 0, 1), SRGB, std.logarithmic, "BT.709 logarithmic (cICP)"),
    Row("png linear", lambda: png(1, 8, 0, 1), SRGB, std.power(1), "BT.709 linear (cICP)"),
    Row("png16 linear", lambda: png16(1, 8, 0, 1), SRGB, std.power(1), "BT.709 linear (cICP)", bits=16),
    Row("png narrow", lambda: png(1, 13, 0, 0), SRGB, narrow(8), "BT.709 of narrow range (cICP)"),
    Row("png16 narrow P3", lambda: png16(12, 13, 0, 0), P3, narrow(16),
        "Display P3 of narrow range (cICP)", bits=16),
    Row("png16 P3", lambda: png16(12, 13, 0, 1), P3, CURVE, "Display P3 (cICP)", bits=16),
    Row("png PQ", lambda: png(9, 16, 0, 1), BT2020, std.pq, "BT.2020 PQ (cICP), tone-mapped"),
    Row("png16 PQ", lambda: png16(9, 16, 0, 1), BT2020, std.pq, "BT.2020 PQ (cICP), tone-mapped", bits=16),
    Row("png16 PQ of P3", lambda: png16(12, 16, 0, 1), P3, std.pq,
        "Display P3 PQ (cICP), tone-mapped", bits=16),
    Row("png16 HLG", lambda: png16(9, 18, 0, 1), BT2020, std.hlg, "BT.2020 HLG (cICP), tone-mapped", bits=16),
    Row("png grey PQ", lambda: png(9, 16, 0, 1, samples=GREYS), BT2020, std.pq,
        "BT.2020 PQ (cICP), tone-mapped", grey=True),
    Row("png grey HLG", lambda: png(9, 18, 0, 1, samples=GREYS), BT2020, std.hlg,
        "BT.2020 HLG (cICP), tone-mapped", grey=True),
    Row("png grey gAMA", lambda: png(gAMA=std.gama(1.0), samples=GREYS), SRGB, std.power(1), "gAMA 1.00000",
        grey=True),
    Row("png gAMA of old Macs", lambda: png(gAMA=std.gama(0.55556)), SRGB, std.power(1.8), "gAMA 0.55556"),
    Row("png16 gAMA linear", lambda: png16(gAMA=std.gama(1.0)), SRGB, std.power(1), "gAMA 1.00000", bits=16),
    Row("png cHRM alone", lambda: png(cHRM=std.chrm(P3)), P3, CURVE, "cHRM"),
    Row("png Adobe RGB", lambda: png(gAMA=std.gama(0.45471), cHRM=std.chrm(std.ADOBE_RGB)), std.ADOBE_RGB,
        std.power(1 / 0.45471), "gAMA 0.45471 and cHRM"),
    Row("png gAMA before sRGB's cHRM", lambda: png(gAMA=std.gama(1.0), cHRM=std.chrm(SRGB)), SRGB,
        std.power(1), "gAMA 1.00000"),
    Row("avif P3", lambda: avif(12, 13), P3, CURVE, "Display P3 (nclx)"),
    Row("avif BT.2020", lambda: avif(9, 14), BT2020, CURVE, "BT.2020 (nclx)"),
    Row("avif P3 by matrix 6", lambda: avif(12, 13, matrix=6), P3, CURVE, "Display P3 (nclx)", 8),
    Row("avif10 P3", lambda: avif(12, 13, 10), P3, CURVE, "Display P3 (nclx)", bits=10),
    Row("avif10 PQ", lambda: avif(9, 16, 10), BT2020, std.pq, "BT.2020 PQ (nclx), tone-mapped", bits=10),
    Row("avif12 HLG", lambda: avif(9, 18, 12), BT2020, std.hlg, "BT.2020 HLG (nclx), tone-mapped", bits=12),
    Row("avif linear", lambda: avif(1, 8, 12), SRGB, std.power(1), "BT.709 linear (nclx)", bits=12),
    # What wins in a PNG: cICP > iCCP > sRGB > gAMA and cHRM.
    Row("cICP before sRGB, gAMA", lambda: png(12, 13, 0, 1, sRGB=b"\0", gAMA=std.gama(1)), P3, CURVE,
        "Display P3 (cICP)"),
    Row("unspecified cICP before gAMA", lambda: png(2, 2, 0, 1, gAMA=std.gama(1)), SRGB, std.power(1),
        "gAMA 1.00000"),
    Row("sRGB before gAMA, cHRM", lambda: png(sRGB=b"\0", gAMA=std.gama(1), cHRM=std.chrm(P3)), SRGB,
        CURVE, None, 0),
    Row("unsound sRGB", lambda: png(sRGB=b"\x09", cHRM=std.chrm(P3)), P3, CURVE, "cHRM"),
]  # fmt: skip
# Files that mean sRGB: not one sample changes.
SAME = [
    ("cICP", png(1, 13, 0, 1)), ("cICP of BT.709", png(1, 1, 0, 1)), ("unspecified", png(2, 2, 0, 1)),
    ("gAMA", png(gAMA=std.gama(0.45455))), ("gAMA rounded", png(gAMA=std.gama(0.45))),
    ("gAMA within 5 %", png(gAMA=std.gama(0.4348))),
    ("gAMA and cHRM", png(gAMA=std.gama(0.45455), cHRM=std.chrm(SRGB))),
    ("gAMA and cHRM rounded", png(gAMA=std.gama(0.4545), cHRM=std.chrm([round(v, 2) for v in SRGB]))),
    ("no gAMA", png(gAMA=std.gama(0))), ("gAMA absurd", png(gAMA=std.gama(500))),
    ("gAMA too short", png(gAMA=b"\0\1")), ("cHRM of zeros", png(cHRM=bytes(32))),
    ("cHRM too short", png(cHRM=std.chrm(P3)[:-1])), ("cHRM on a line", png(cHRM=std.chrm((0.3, 0.3) * 4))),
    ("cICP of YCbCr", png(12, 13, 1, 1)), ("cICP too short", png(12, 13, 0)), ("flag 2", png(12, 13, 0, 2)),
    ("reserved", png(0, 0, 0, 1)), ("grey P3", png(12, 13, 0, 1, samples=GREYS)),
]  # fmt: skip


@pytest.mark.parametrize("row", TABLE, ids=[row.name for row in TABLE])
def test_colours_are_those_of_the_standards(row: Row) -> None:
    decoded = decode(row.data())
    expected = std.shown(row.signal, row.primaries, row.curve)
    assert decoded.source.icc_profile == row.told
    error = np.abs(decoded.pixels - expected)
    assert error.max() <= row.most + 0.5, f"{error.max():.2f}, mean {error.mean():.3f}"


@pytest.mark.parametrize("bits", ["uint16", "float32", "min-is-white"])
@pytest.mark.parametrize("grey", [True, False])
def test_profiles_of_deep_tiffs_see_all_bits(bits: str, grey: bool) -> None:
    """A linear profile, of which 8 bits would lose the dark colours by up to 13 levels."""
    share = np.linspace(0, 0.1, 600).reshape(20, 30)
    samples = share if grey else np.dstack([share, share[::-1], share[:, ::-1]])
    stored = samples if bits == "float32" else np.rint(65535 * (1 - samples if "min" in bits else samples))
    if bits == "min-is-white" and not grey:
        pytest.skip("no such file")
    icc = grey_profile(1.0) if grey else rgb_profile(swapped=False, gamma=1.0)
    stream = io.BytesIO()
    photometric = "miniswhite" if "min" in bits else "minisblack" if grey else "rgb"
    dtype = np.float32 if bits == "float32" else np.uint16
    if dtype == np.float32 and not grey:
        pytest.skip("no such file")
    tifffile.imwrite(stream, stored.astype(dtype), photometric=photometric, iccprofile=icc)
    decoded = decode(stream.getvalue())
    signal = samples if samples.ndim == 3 else np.dstack([samples] * 3)
    assert np.abs(decoded.pixels - std.shown(signal, SRGB, std.power(1))).max() <= 1.5
    assert decoded.source.icc_profile is not None


@pytest.mark.parametrize("data", [data for _, data in SAME], ids=[name for name, _ in SAME])
def test_what_means_srgb_keeps_every_sample(data: bytes) -> None:
    decoded = decode(data)
    assert decoded.source.icc_profile is None
    wanted = CUBE if decoded.pixels.shape == CUBE.shape else np.dstack([GREYS] * 3)
    assert np.array_equal(decoded.pixels, wanted)


def test_display_p3_is_the_same_pixel_however_it_is_stated() -> None:
    many = np.random.default_rng(0).integers(0, 256, (100, 100, 3)).astype(np.uint8)
    for samples in (CUBE, many):
        by_icc = decode(saved(samples, icc_profile=display_p3_profile())).pixels
        assert np.array_equal(decode(png(12, 13, 0, 1, samples=samples)).pixels, by_icc)
        assert np.abs(by_icc.astype(int) - samples).max() > 20
    assert np.array_equal(decode(avif(12, 13)).pixels, decode(png(12, 13, 0, 1)).pixels)
    red = np.full((8, 8, 3), (234, 51, 35), np.uint8)  # of sRGB's (255, 0, 0)
    assert np.abs(decode(png(12, 13, 0, 1, samples=red)).pixels.astype(int) - (255, 0, 0)).max() <= 2


def by_inks(samples: std.Floats) -> std.Floats:
    """CIE L*a*b* of inks that mix like filters, [N, 4]."""
    return std.lab_of_srgb((1 - samples[:, :3]) * (1 - samples[:, 3:]))


def of_grey(samples: std.Floats) -> std.Floats:
    """CIE L*a*b* of grey whose samples are lightness."""
    return np.hstack([100 * samples, np.zeros((len(samples), 2))])


def in_float(samples: npt.NDArray[np.uint8], icc: bytes, mode: str) -> npt.NDArray[np.uint8]:
    """Samples of sRGB by Little CMS at its highest precision."""
    flags = ImageCms.Flags.BLACKPOINTCOMPENSATION | ImageCms.Flags.NOOPTIMIZE
    profile = ImageCms.ImageCmsProfile(io.BytesIO(icc))
    transform = ImageCms.buildTransform(profile, ImageCms.createProfile("sRGB"), mode, "RGB", 1, flags)
    shape = samples.shape[1::-1]
    return np.asarray(transform.apply(Image.frombytes(mode, shape, samples.tobytes())))


INKS = np.dstack([255 - CUBE, np.tile(LEVELS, (12, 3))])
ICC_TABLE = [  # space, samples, profile, formula of sRGB (None: only Little CMS in float), largest errors
    ("RGB", CUBE, std.lut_profile(b"RGB ", 3, lambda v: std.lab_of_srgb(v[:, ::-1]), 2), None, 6),
    ("RGB", CUBE, std.lut_profile(b"RGB ", 3, lambda v: std.lab_of_srgb(v[:, ::-1]), 4), None, 6),
    ("RGB", CUBE, display_p3_profile(), std.shown(CUBE / 255, P3, CURVE), 1.5),
    ("RGB", CUBE, imagecodecs.cms_profile("adobergb"),
     std.shown(CUBE / 255, std.ADOBE_RGB, std.power(2.19921875)), 1.5),
    ("L", GREYS, std.lut_profile(b"GRAY", 1, of_grey, 2), None, 1),
    ("L", GREYS, std.lut_profile(b"GRAY", 1, of_grey, 4), None, 1),
    ("L", GREYS, grey_profile(1.0), std.shown(np.dstack([GREYS] * 3) / 255, SRGB, std.power(1)), 1.5),
    ("CMYK", INKS, std.lut_profile(b"CMYK", 4, by_inks, 2), None, 6),
    ("CMYK", INKS, std.lut_profile(b"CMYK", 4, by_inks, 4), None, 6),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "samples", "icc", "formula", "most"), ICC_TABLE)
@pytest.mark.parametrize("kind", ["TIFF", "PNG", "JPEG"])
def test_icc_profiles_of_every_kind(
    kind: str, mode: str, samples: npt.NDArray[np.uint8], icc: bytes, formula: std.Floats | None, most: float
) -> None:
    if (kind, mode) in (("PNG", "CMYK"), ("JPEG", "RGB")):
        pytest.skip("no such file")
    stream = io.BytesIO()
    image = Image.frombytes(mode, samples.shape[1::-1], samples.tobytes())
    image.save(
        stream, kind, icc_profile=icc, **({"quality": 100, "subsampling": 0} if kind == "JPEG" else {})
    )
    decoded = decode(stream.getvalue())
    assert decoded.source.icc_profile is not None
    assert decoded.source.note == ""
    error = np.abs(
        decoded.pixels - (in_float(samples, icc, mode).astype(float) if formula is None else formula)
    )
    assert error.max() <= most + (6 if kind == "JPEG" else 0)


@pytest.mark.skipif(which("vips") is None, reason="libvips is missing: HEIF is NOT compared")
@pytest.mark.parametrize(
    ("bits", "codes", "primaries", "curve", "most"),
    [(8, (12, 13), P3, CURVE, 6), (10, (9, 16), BT2020, std.pq, 12), (10, (12, 13), P3, CURVE, 2)],
)
def test_heif_by_libvips(
    bits: int,
    codes: tuple[int, int],
    primaries: tuple[float, ...],
    curve: std.Curve,
    most: float,
    tmp_path: Path,
) -> None:
    pytest.importorskip("pi_heif")
    muted = 60 + CUBE // 2  # lossless YCbCr of 8 bits moves RGB by a level
    icc = display_p3_profile()
    (tmp_path / "a.png").write_bytes(saved(muted, icc_profile=icc))
    options = ["--bitdepth", str(bits), "--lossless", "--subsample-mode", "off"]
    command = ["vips", "heifsave", str(tmp_path / "a.png"), str(tmp_path / "a.heic"), *options]
    subprocess.run(command, check=True, capture_output=True)
    data = (tmp_path / "a.heic").read_bytes()
    place = data.index(b"colrrICC") + 8
    assert data[place : place + len(icc)] == icc

    def stating(*values: int) -> bytes:
        """The file with code points in the place of its profile: libvips states none."""
        nclx = b"nclx" + struct.pack(">HHHB", *values)
        return data[: place - 4] + nclx + bytes(len(icc) - 7) + data[place + len(icc) :]

    decoded = decode(stating(*codes, 6, 0x80))
    assert decoded.source.icc_profile in ("Display P3 (nclx)", "BT.2020 PQ (nclx), tone-mapped")
    assert np.abs(decoded.pixels - std.shown(muted / 255, primaries, curve)).max() <= most
    for matrix, full in ((1, False), (9, True)):  # of nclx, which win over those of the bitstream
        coded = narrowed(muted / 255 @ ycbcr(6).T, full) @ np.linalg.inv(ycbcr(matrix)).T
        plain = decode(stating(1, 13, matrix, 0x80 * full)).pixels
        assert np.abs(plain - 255 * np.clip(coded, 0, 1)).max() <= 3


# Weights of red and blue (H.273, table 4).
WEIGHTS = {1: (0.2126, 0.0722), 6: (0.299, 0.114), 9: (0.2627, 0.0593)}


def ycbcr(matrix: int) -> std.Floats:
    """The matrix from RGB to YCbCr, all 0 to 1, chroma from -0.5."""
    red, blue = WEIGHTS[matrix]
    luma = np.array([red, 1 - red - blue, blue])
    rows = (luma, (np.array([0, 0, 1]) - luma) / (2 - 2 * blue), (np.array([1, 0, 0]) - luma) / (2 - 2 * red))
    return np.array(rows)


def narrowed(coded: std.Floats, full: bool) -> std.Floats:
    """YCbCr of the full range as it is read in the narrow one, unless it is full."""
    return coded if full else coded * [255 / 219, 255 / 224, 255 / 224] - [16 / 219, 0, 0]


@pytest.mark.parametrize("matrix", [1, 6, 9])
@pytest.mark.parametrize("full", [True, False])
def test_matrix_and_range_of_nclx_win_over_the_bitstream(matrix: int, full: bool) -> None:
    muted = 60 + CUBE // 2
    data = imagecodecs.avif_encode(muted, level=100, pixelformat="444", primaries=1, transfer=13, matrix=1)
    at = data.index(b"nclx") + 8
    changed = data[:at] + struct.pack(">HB", matrix, 0x80 if full else 0) + data[at + 3 :]
    coded = narrowed(muted / 255 @ ycbcr(1).T, full)
    expected = 255 * np.clip(coded @ np.linalg.inv(ycbcr(matrix)).T, 0, 1)
    # libyuv clips a factor of blue in narrow ranges at 2: of 2.11 in BT.709, of 2.14 in BT.2020.
    assert np.abs(decode(changed).pixels - expected).max() <= (3 if full or matrix == 6 else 10)


@pytest.mark.parametrize("with_profile", [True, False])
def test_lab_is_converted_by_its_profile_or_the_formula(with_profile: bool) -> None:
    lab = std.lab_of_srgb(CUBE.reshape(-1, 3) / 255)
    coded = np.rint(lab * [2.55, 1, 1]).astype(int)
    samples = np.stack([coded[:, 0], coded[:, 1] & 255, coded[:, 2] & 255], axis=1).astype(np.uint8)
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes() if with_profile else None
    stream = io.BytesIO()
    tifffile.imwrite(stream, samples.reshape(CUBE.shape), photometric="cielab", iccprofile=profile)
    expected = std.srgb_of_lab(coded / [2.55, 1, 1]).reshape(CUBE.shape)
    assert np.abs(decode(stream.getvalue()).pixels - expected).max() <= 1.5
