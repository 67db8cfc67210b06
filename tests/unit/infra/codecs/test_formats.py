"""Formats by content: every kind of each."""

from __future__ import annotations

import base64
import sys
import zlib
from typing import Any

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected
from tests.samples.images.forms import gradient, gradient_image, png_chunk, saved

# The gradient, turned by the container itself, as libheif and x265 wrote it.
TURNED_HEIC = base64.b64decode(
    "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAchtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAAAAAA"
    "ADRpbG9jAAAAAERAAAIAAQAAAAAB7AABAAAAAAAAALwAAgAAAAACqAABAAAAAAAAACQAAAA4aWluZgAAAAAAAgAAABVpbmZlAgAA"
    "AAABAABodmMxAAAAABVpbmZlAgAAAQACAABFeGlmAAAAAA5waXRtAAAAAAABAAABB2lwcnAAAADmaXBjbwAAAHZodmNDAQNwAAAA"
    "kAAAAAAAHvAA/P34+AAADwNgAAEAGEABDAH//wNwAAADAJAAAAMAAAMAHroCQGEAAQAqQgEBA3AAAAMAkAAAAwAAAwAeoCCBBZbq"
    "5Ka5uAhoMCAAAAMDIAAAAwAhYgABAAZEAcFzwIkAAAATY29scm5jbHgAAQANAAaAAAAAFGlzcGUAAAAAAAAAQAAAAEAAAAAoY2xh"
    "cAAAAEAAAAABAAAAMAAAAAEAAAAAAAAAAv////AAAAACAAAAEHBpeGkAAAAAAwgICAAAAAlpcm90AwAAABlpcG1hAAAAAAAAAAEA"
    "AQaBAgMFhIYAAAAaaXJlZgAAAAAAAAAOY2RzYwACAAEAAQAAAOhtZGF0AAAAuCgBrwngFaU9f+L7iL5/C9eW/4ghxpS6nh4SKbnZ"
    "uWvXKt13acUUzK1V1l8oIqC1pKuLlInQDdnm58KtOWxG35mcmkGPHrDIOnC3jE/rpk6u/Iq2RLwi6ufQIBwL3PCnABBhEaD2KnUq"
    "HvlnxrUBNi7lf430lDmkVC/VXop+wDalr6HPyrakEkCv0OQTmw4AN3kdpdzrrVlXjz2o7w8bAtVlFklXuQS4XCtqj6IVXGc2mPxs"
    "W5Fcan4AAAAGRXhpZgAATU0AKgAAAAgAAQESAAMAAAABAAYAAAAAAAA="
)


def test_heif_is_turned_as_its_container_says() -> None:
    pytest.importorskip("pi_heif", reason="the extra heif is not installed")
    decoded = codecs.decode(TURNED_HEIC)
    expected = np.asarray(gradient_image().transpose(Image.Transpose.ROTATE_270))
    assert (decoded.source.format, decoded.source.color, decoded.source.orientation) == ("heif", "RGB", 1)
    assert decoded.pixels.shape == (64, 48, 3)
    assert np.abs(decoded.pixels.astype(int) - expected).mean() < 6


def test_what_would_crash_the_library_of_heif_does_not_reach_it() -> None:
    pytest.importorskip("pi_heif", reason="the extra heif is not installed")
    with pytest.raises(ImageRejected, match="no text") as caught:
        codecs.decode(
            TURNED_HEIC.replace(b"Exif\x00\x00\x00\x00\x0epitm", b"\xffxif\x00\x00\x00\x00\x0epitm")
        )
    assert caught.value.reason == "corrupt"


def test_heif_without_its_library_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pi_heif", None)
    with pytest.raises(ImageRejected, match=r"pip install 'shardmill\[heif\]'") as caught:
        codecs.decode(TURNED_HEIC)
    assert caught.value.reason == "unsupported"


@pytest.mark.parametrize("order", ["<", ">"])
def test_big_tiff(order: str) -> None:
    data = saved(gradient_image(), "TIFF", big_tiff=True)
    assert codecs.sniff(data) == "tiff"
    assert np.array_equal(codecs.decode(data).pixels, gradient())


@pytest.mark.parametrize(
    ("options", "subsampling"),
    [
        ({"progressive": True}, "420"),
        ({"restart_marker_blocks": 2}, "420"),
        ({"optimize": True}, "420"),
        ({}, "444"),
        ({}, "422"),
        ({}, "440"),
        ({}, "411"),
    ],
)
def test_every_kind_of_jpeg(options: dict[str, Any], subsampling: str) -> None:
    if options:
        data = saved(gradient_image(), "JPEG", quality=95, **options)
    else:
        data = bytes(simplejpeg.encode_jpeg(gradient(), quality=95, colorsubsampling=subsampling))
    for channels in (1, 3):
        decoded = codecs.decode(data, channels)
        expected = np.asarray(gradient_image().convert("L" if channels == 1 else "RGB")).reshape(
            48, 64, channels
        )
        assert np.abs(decoded.pixels.astype(int) - expected).mean() < 4
    assert decoded.source.color == f"YCbCr {':'.join(subsampling)}"


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(
    ("mode", "color"),
    [
        ("1", "grey 1-bit"),
        ("L", "grey"),
        ("LA", "grey+alpha"),
        ("P", "palette"),
        ("RGB", "RGB"),
        ("RGBA", "RGBA"),
        ("I;16", "grey 16-bit"),
    ],
)
def test_every_kind_of_png(mode: str, color: str, interlaced: bool) -> None:
    grey = np.asarray(gradient_image().convert("L"))
    source = (
        Image.fromarray(grey.astype(np.uint16) * 257) if mode == "I;16" else gradient_image().convert(mode)
    )
    data = interlace(source) if interlaced else saved(source, "PNG")
    decoded = codecs.decode(data)
    expected = grey if mode == "I;16" else np.asarray(source.convert("L" if mode in ("L", "LA") else "RGB"))
    assert decoded.source.color == color
    assert np.abs(decoded.pixels.astype(int) - expected.reshape(48, 64, -1)).max() <= 1


def interlace(source: Image.Image) -> bytes:
    """The same picture as an Adam7 PNG, which Pillow reads and does not write."""
    plain = saved(source, "PNG")
    bits, color_type = plain[24], plain[25]
    bands = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color_type]
    samples = np.asarray(source)
    if bits == 16:
        samples = samples.astype(">u2")
    samples = samples.reshape(source.height, source.width, bands)
    rows = b""
    passes = (
        (0, 0, 8, 8),
        (0, 4, 8, 8),
        (4, 0, 8, 4),
        (0, 2, 4, 4),
        (2, 0, 4, 2),
        (0, 1, 2, 2),
        (1, 0, 2, 1),
    )
    for top, left, down, right in passes:
        for row in samples[top::down, left::right]:
            packed = np.packbits(row) if bits == 1 else np.ascontiguousarray(row)
            rows += b"\x00" + packed.tobytes()
    palette = plain[33 : plain.index(b"IDAT") - 4]
    header = png_chunk(b"IHDR", plain[16:28] + b"\x01")
    return plain[:8] + header + palette + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")


@pytest.mark.parametrize("format_", ["GIF", "PNG", "WEBP", "TIFF", "AVIF"])
def test_of_an_animation_the_first_frame(format_: str) -> None:
    frames = [Image.new("RGB", (20, 10), color) for color in ("red", "blue", "lime")]
    options: dict[str, Any] = {"lossless": True} if format_ == "WEBP" else {}
    data = saved(frames[0], format_, save_all=True, append_images=frames[1:], **options)
    decoded = codecs.decode(data)
    assert decoded.pixels.shape == (10, 20, 3)
    assert np.abs(decoded.pixels.astype(int) - [255, 0, 0]).max() <= 4


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format_", ["PNG", "WEBP", "TIFF", "AVIF"])
def test_sizes_are_those_before_turning(format_: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    decoded = codecs.decode(saved(gradient_image(), format_, exif=exif))
    assert (decoded.source.height, decoded.source.width, decoded.source.orientation) == (48, 64, orientation)
    assert decoded.pixels.shape[:2] == ((48, 64) if orientation < 5 else (64, 48))
