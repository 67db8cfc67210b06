"""GIF, WebP, AVIF and HEIF in their forms against what was written. GIFs are written here, byte by byte."""

from __future__ import annotations

import io
import itertools
import struct
import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import cv2
import imagecodecs
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected, Pixels
from tests.samples.images.forms import gradient, saved

HEIGHT, WIDTH = 11, 13
RANDOM = np.random.default_rng(0)
PALETTE = RANDOM.integers(0, 256, (16, 3)).astype(np.uint8)
INDEXES = RANDOM.integers(0, 16, (HEIGHT, WIDTH)).astype(np.uint8)
SMALL = INDEXES[:5, :6]
GREYS = np.arange(256, dtype=np.uint8)[:, None].repeat(3, axis=1)
FROM_WHITE = GREYS[::-1].copy()
ALL_INDEXES = RANDOM.integers(0, 256, (HEIGHT, WIDTH)).astype(np.uint8)


def lzw(indexes: npt.NDArray[np.uint8], bits: int) -> bytes:
    """Codes of one width, because the table is cleared before it grows."""
    clear = 1 << bits
    codes = [clear]
    for number, index in enumerate(indexes.reshape(-1).tolist()):
        codes += [clear] if number and number % (clear - 2) == 0 else []
        codes.append(index)
    digits = [code >> bit & 1 for code in [*codes, clear + 1] for bit in range(bits + 1)]
    content = np.packbits(np.array(digits, np.uint8), bitorder="little").tobytes()
    blocks = [content[at : at + 255] for at in range(0, len(content), 255)]
    return bytes([bits]) + b"".join(bytes([len(block)]) + block for block in blocks) + b"\0"


def frame(
    indexes: npt.NDArray[np.uint8], clear: int | None = None, at: tuple[int, int] = (0, 0), *,
    interlaced: bool = False, own: Pixels | None = None, bits: int = 4,
) -> bytes:  # fmt: skip
    """A frame of a GIF: ``clear`` is transparent, ``at`` its top and left, ``own`` its palette."""
    control = b"" if clear is None else b"\x21\xf9\x04" + bytes([1, 10, 0, clear]) + b"\0"
    flags = (0x40 if interlaced else 0) | (0 if own is None else 0x80 | (len(own).bit_length() - 2))
    height, width = indexes.shape
    head = b"\x2c" + struct.pack("<HHHHB", at[1], at[0], width, height, flags)
    if interlaced:
        indexes = np.concatenate([indexes[0::8], indexes[4::8], indexes[2::4], indexes[1::2]])
    return control + head + (b"" if own is None else own.tobytes()) + lzw(indexes, bits)


def gif(*frames: bytes, palette: Pixels = PALETTE, version: bytes = b"GIF89a") -> bytes:
    head = struct.pack("<HHBBB", WIDTH, HEIGHT, 0x80 | (len(palette).bit_length() - 2), 5, 0)
    return version + head + palette.tobytes() + b"".join(frames) + b"\x3b"


def shown(indexes: npt.NDArray[np.uint8], clear: int | None = None, palette: Pixels = PALETTE) -> Pixels:
    colors = palette[indexes]
    if clear is not None:
        colors[indexes == clear] = 255
    return colors


WHOLE = shown(INDEXES)
GIFS = {
    "plain": (gif(frame(INDEXES)), WHOLE),
    "of 1987": (gif(frame(INDEXES), version=b"GIF87a"), WHOLE),
    "interlaced": (gif(frame(INDEXES, interlaced=True)), WHOLE),
    "transparent": (gif(frame(INDEXES, 3)), shown(INDEXES, 3)),
    "transparent, interlaced": (gif(frame(INDEXES, 3, interlaced=True)), shown(INDEXES, 3)),
    "a palette of the frame": (gif(frame(INDEXES, own=PALETTE[::-1].copy())), PALETTE[::-1][INDEXES]),
    "greys": (gif(frame(ALL_INDEXES, bits=8), palette=GREYS), GREYS[ALL_INDEXES]),
    "greys, transparent": (gif(frame(ALL_INDEXES, 7, bits=8), palette=GREYS), shown(ALL_INDEXES, 7, GREYS)),
    "greys from white": (
        gif(frame(ALL_INDEXES, bits=8), palette=GREYS[::-1].copy()),
        GREYS[::-1][ALL_INDEXES],
    ),
    "two colours": (gif(frame(INDEXES & 1, bits=2), palette=PALETTE[:2]), PALETTE[INDEXES & 1]),
    "the first of several": (gif(frame(INDEXES), frame(SMALL, 2, (1, 1))), WHOLE),
}


@pytest.mark.parametrize(("data", "expected"), GIFS.values(), ids=GIFS)
def test_gifs(data: bytes, expected: Pixels) -> None:
    assert np.array_equal(codecs.decode(data).pixels, expected)


def test_around_a_transparent_first_frame_is_the_background() -> None:
    expected = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    expected[2:7, 3:9] = shown(SMALL, 2)
    assert np.array_equal(codecs.decode(gif(frame(SMALL, 2, (2, 3)))).pixels, expected)


def test_a_first_frame_that_leaves_a_part_free_is_unsupported() -> None:
    with pytest.raises(ImageRejected, match="does not cover its canvas") as caught:
        codecs.decode(gif(frame(SMALL, None, (2, 3))))
    assert caught.value.reason == "unsupported"


COLORS = gradient(32, 48)
OPACITY = np.add.outer(np.arange(32) * 3, np.arange(48) * 3).astype(np.uint8)
CLEAR = np.dstack([COLORS, OPACITY])
ON_WHITE = COLORS * (OPACITY[:, :, None] / 255) + 255 * (1 - OPACITY[:, :, None] / 255)


@pytest.mark.parametrize(
    "options", [{"lossless": True, "exact": True}, {"quality": 100, "alpha_quality": 100}], ids=str
)
@pytest.mark.parametrize("animated", [False, True])
def test_webp_with_opacity(options: dict[str, Any], animated: bool) -> None:
    image = Image.fromarray(CLEAR)
    more = {"save_all": True, "append_images": [Image.fromarray(255 - CLEAR)]} if animated else {}
    off = np.abs(codecs.decode(saved(image, "WEBP", **options, **more)).pixels - ON_WHITE)
    assert off.max() <= (1.01 if "lossless" in options else 40)
    assert off.mean() < 3


@pytest.mark.parametrize(
    ("bits", "sampling", "clear"),
    list(itertools.product((8, 10, 12), ("400", "420", "422", "444"), (False, True))),
)
def test_avif(bits: int, sampling: str, clear: bool) -> None:
    smooth = np.dstack(
        [np.add.outer(np.arange(32), np.arange(48) * 2) + 30 * channel for channel in range(3)]
    )
    samples = smooth[:, :, :1].repeat(3, axis=2) if sampling == "400" else smooth
    stored = np.dstack([samples, OPACITY]) if clear else samples
    if sampling == "400":
        stored = stored[:, :, :1]
        if clear:
            return  # the encoder makes none
    stored = stored.astype(np.uint16) << (bits - 8) if bits > 8 else stored.astype(np.uint8)
    data = imagecodecs.avif_encode(stored, level=95, bitspersample=bits, pixelformat=sampling, numthreads=1)
    expected = samples.astype(float)
    if clear:
        expected = samples * (OPACITY[:, :, None] / 255) + 255 * (1 - OPACITY[:, :, None] / 255)
    decoded = codecs.decode(data)
    assert np.abs(decoded.pixels - expected).max() <= 8
    if not clear:
        seen = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
        assert np.abs(decoded.pixels.astype(int) - seen).max() <= 2


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_avif_is_turned_as_its_container_says(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    sink = io.BytesIO()
    Image.fromarray(COLORS).save(sink, "AVIF", quality=98, subsampling="4:4:4", exif=exif)
    upright = codecs.apply_orientation(COLORS, orientation)
    decoded = codecs.decode(sink.getvalue())
    assert decoded.pixels.shape == upright.shape
    assert np.abs(decoded.pixels.astype(int) - upright).mean() < 3


@pytest.mark.slow
@pytest.mark.skipif(which("vips") is None, reason="libvips is missing: HEIF is NOT compared")
@pytest.mark.parametrize("bits", [8, 10, 12])
@pytest.mark.parametrize("sampled", ["on", "off"])
@pytest.mark.parametrize("clear", [False, True])
def test_heif(bits: int, sampled: str, clear: bool, tmp_path: Path) -> None:
    pytest.importorskip("pi_heif")
    ramp = np.add.outer(np.arange(32), np.arange(48) * 2)
    smooth = np.dstack([ramp, ramp + 30, ramp + 60])
    stored = np.dstack([smooth, OPACITY]) if clear else smooth
    (tmp_path / "a.png").write_bytes(saved(Image.fromarray(stored.astype(np.uint8)), "PNG"))
    options = ["--compression", "hevc", "--bitdepth", str(bits), "--subsample-mode", sampled, "--Q", "95"]
    command = ["vips", "heifsave", str(tmp_path / "a.png"), str(tmp_path / "a.heic"), *options]
    subprocess.run(command, check=True, capture_output=True)
    alpha = stored[:, :, 3:] / 255 if clear else np.ones((32, 48, 1))
    expected = smooth * alpha + 255 * (1 - alpha)
    off = np.abs(codecs.decode((tmp_path / "a.heic").read_bytes()).pixels - expected)
    assert off.mean() < 3
    assert off.max() <= 16
