"""Formats by content, the same pictures without metadata, and what is refused or salvaged."""

from __future__ import annotations

import base64
import io
import struct
import sys
import threading
import warnings
import zlib
from typing import Any

import numpy as np
import pytest
import simplejpeg
from PIL import Image, ImageFile

from infra import codecs
from infra.codecs import ImageRejected
from infra.codecs.formats import check_format
from infra.codecs.library_state import no_warnings
from infra.codecs.metadata import without_metadata
from tests.samples.images import gradient, png_chunk, rgb_profile, saved

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


def image(**options: Any) -> Image.Image:
    return Image.fromarray(gradient(**options))


def test_heif_is_turned_as_its_container_says() -> None:
    pytest.importorskip("pi_heif", reason="the extra heif is not installed")
    decoded = codecs.decode(TURNED_HEIC)
    expected = np.asarray(image().transpose(Image.Transpose.ROTATE_270))
    assert (decoded.source_format, decoded.source_color, decoded.orientation) == ("heif", "RGB", 1)
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
    data = saved(image(), "TIFF", big_tiff=True)
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
        data = saved(image(), "JPEG", quality=95, **options)
    else:
        data = bytes(simplejpeg.encode_jpeg(gradient(), quality=95, colorsubsampling=subsampling))
    for channels in (1, 3):
        decoded = codecs.decode(data, channels)
        expected = np.asarray(image().convert("L" if channels == 1 else "RGB")).reshape(48, 64, channels)
        assert np.abs(decoded.pixels.astype(int) - expected).mean() < 4
    assert decoded.source_color == f"YCbCr {':'.join(subsampling)}"


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
    grey = np.asarray(image().convert("L"))
    source = Image.fromarray(grey.astype(np.uint16) * 257) if mode == "I;16" else image().convert(mode)
    data = interlace(source) if interlaced else saved(source, "PNG")
    decoded = codecs.decode(data)
    expected = grey if mode == "I;16" else np.asarray(source.convert("L" if mode in ("L", "LA") else "RGB"))
    assert decoded.source_color == color
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
    decoded = codecs.decode(saved(image(), format_, exif=exif))
    assert (decoded.source_height, decoded.source_width, decoded.orientation) == (48, 64, orientation)
    assert decoded.pixels.shape[:2] == ((48, 64) if orientation < 5 else (64, 48))


SECRETS = {"JPEG": b"\xff\xe1", "PNG": b"eXIf", "WEBP": b"EXIF"}


@pytest.mark.parametrize(
    ("format_", "mode"),
    [
        *(("JPEG", mode) for mode in ("RGB", "L")),
        *((format_, mode) for format_ in ("PNG", "WEBP") for mode in ("RGB", "RGBA", "L", "P")),
    ],
)
@pytest.mark.parametrize("lossless", [False, True])
def test_without_metadata_the_picture_is_the_same(format_: str, mode: str, lossless: bool) -> None:
    source = image().convert(mode)
    if mode == "RGBA":
        source.putalpha(Image.linear_gradient("L").resize(source.size))
    exif = Image.Exif()
    exif[0x010F] = "Camera of somebody"
    options: dict[str, Any] = {"exif": exif, "icc_profile": rgb_profile(swapped=False)}
    options |= {"lossless": lossless, "xmp": b"somebody"} if format_ == "WEBP" else {}
    plain = {"lossless": lossless} if format_ == "WEBP" else {}
    data = saved(source, format_, **options) + b"and more of somebody"
    clean = without_metadata(data, format_.lower())
    assert clean is not None
    assert b"somebody" in data
    for secret in (b"somebody", SECRETS[format_], b"ICC", b"iCCP"):
        assert secret not in clean
    assert without_metadata(clean, format_.lower()) == clean
    assert len(clean) <= len(saved(source, format_, **plain)) + 18
    with Image.open(io.BytesIO(data)) as before, Image.open(io.BytesIO(clean)) as after:
        assert np.array_equal(np.asarray(before), np.asarray(after))


@pytest.mark.parametrize("format_", ["gif", "tiff", "bmp", "avif", "heif", "jpeg2000"])
def test_metadata_of_other_formats_cannot_be_removed(format_: str) -> None:
    assert without_metadata(b"anything", format_) is None


def test_metadata_of_an_animation_or_of_a_broken_file_cannot_be_removed() -> None:
    frames = [Image.new("RGB", (20, 10), color) for color in ("red", "blue")]
    assert without_metadata(saved(frames[0], "WEBP", save_all=True, append_images=frames[1:]), "webp") is None
    for format_ in SECRETS:
        for end in (40, -2):
            assert without_metadata(saved(image(), format_)[:end], format_.lower()) is None


def test_what_lies_behind_a_chunk_that_cannot_be_followed_never_passes_for_the_picture() -> None:
    plain = saved(image(), "PNG")
    end = plain.index(b"IEND") - 4
    data = plain[:end] + png_chunk(b"\x00\x00\x00\x00", b"") + png_chunk(b"tEXt", b"somebody") + plain[end:]
    assert np.array_equal(codecs.decode(data).pixels, gradient())
    assert without_metadata(data, "png") is None


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"  <!DOCTYPE html><html>", "HTML page"),
        (b"%PDF-1.7", "PDF"),
        (b"8BPS\x00\x01", "Photoshop"),
        (b"\x00\x00\x00\x20ftypisom\x00\x00\x02\x00isommp41", "a film"),
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
    jpeg, gif = saved(image(), "JPEG"), saved(image(), "GIF")
    webp = saved(image(), "WEBP")
    tiff, bmp, jpeg2000 = (
        saved(image(), "TIFF"),
        saved(image(), "BMP"),
        saved(image(), "JPEG2000", no_jp2=True),
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
    plain = saved(image(), "PNG")
    for chunk in (png_chunk(name, content), png_chunk(name, b"damaged\x00\x00" + b"z" * 40)[:-4] + b"~crc"):
        assert np.array_equal(codecs.decode(plain[:33] + chunk + plain[33:]).pixels, gradient())


def cut(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


def noise() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))


TRUNCATED = {
    "jpeg": cut(saved(noise(), "JPEG", quality=95)),
    "progressive": cut(saved(noise(), "JPEG", quality=95, progressive=True)),
    "cmyk": cut(saved(noise().convert("CMYK"), "JPEG", quality=95)),
    "png": cut(saved(noise(), "PNG")),
    "gif": cut(saved(noise(), "GIF")),
    "bmp": cut(saved(noise(), "BMP")),
    "tiff": cut(saved(noise(), "TIFF")),
    "deflated tiff": cut(saved(noise(), "TIFF", compression="tiff_adobe_deflate")),
    "webp": cut(saved(noise(), "WEBP", lossless=True)),
    "jpeg2000": cut(saved(noise(), "JPEG2000")),
    "avif": cut(saved(noise(), "AVIF", quality=95)),
}


@pytest.mark.parametrize("name", TRUNCATED)
def test_what_ends_early_is_said_so(name: str) -> None:
    with pytest.raises(ImageRejected, match=r"ends early|before its picture") as caught:
        codecs.decode(TRUNCATED[name])
    assert caught.value.reason == "truncated"


@pytest.mark.parametrize("name", ["jpeg", "progressive", "cmyk", "png", "gif", "bmp", "tiff"])
def test_what_ends_early_is_salvaged_on_request(name: str) -> None:
    decoded = codecs.decode(TRUNCATED[name], allow_truncated=True)
    assert decoded.salvaged
    assert decoded.pixels.shape == (64, 64, 3)
    rows = decoded.pixels[::-1] if name == "bmp" else decoded.pixels  # which has its lowest row first
    assert rows[:16].std() > 20


@pytest.mark.parametrize("name", ["webp", "avif", "jpeg2000", "deflated tiff"])
def test_what_no_library_salvages_stays_truncated(name: str) -> None:
    with pytest.raises(ImageRejected) as caught:
        codecs.decode(TRUNCATED[name], allow_truncated=True)
    assert caught.value.reason == "truncated"


def test_damage_is_not_taken_for_an_early_end() -> None:
    data = bytearray(saved(noise(), "PNG"))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(ImageRejected) as caught:
        codecs.decode(bytes(data), allow_truncated=True)
    assert caught.value.reason == "corrupt"


@pytest.mark.parametrize("options", [{}, {"restart_marker_blocks": 1}])
def test_a_jpeg_that_lacks_nothing_but_its_end_mark_is_whole(options: dict[str, Any]) -> None:
    data = saved(noise(), "JPEG", quality=95, **options)
    decoded = codecs.decode(data[:-2])
    assert not decoded.salvaged
    assert np.array_equal(decoded.pixels, codecs.decode(data).pixels)


def test_a_progressive_jpeg_that_lacks_a_scan_is_truncated() -> None:
    data = saved(noise(), "JPEG", quality=95, progressive=True)
    for end in (data.rindex(b"\xff\xda"), data.rindex(b"\xff\xc4")):
        with pytest.raises(ImageRejected) as caught:
            codecs.decode(data[:end])
        assert caught.value.reason == "truncated"


def test_salvage_in_one_thread_makes_no_other_thread_lenient() -> None:
    stop, lenient = threading.Event(), []

    def salvage() -> None:
        while not stop.is_set():
            codecs.decode(TRUNCATED["gif"], allow_truncated=True)

    thread = threading.Thread(target=salvage)
    thread.start()
    for _ in range(200):
        try:
            codecs.decode(TRUNCATED["gif"])
            lenient.append("decoded")
        except ImageRejected:
            pass
    stop.set()
    thread.join()
    assert lenient == []
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


def test_silence_ends_with_the_last_thread_that_wanted_it() -> None:
    begun, done = threading.Event(), threading.Event()

    def hold() -> None:
        with no_warnings:
            begun.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    with no_warnings:
        thread.start()
        begun.wait(10)
    warnings.warn("unheard", stacklevel=1)
    done.set()
    thread.join()
    with pytest.warns(UserWarning, match="heard"):
        warnings.warn("heard", stacklevel=1)
