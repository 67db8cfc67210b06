"""JPEGs of unusual samplings, with padded or missing scans, and of the lossless process."""

from __future__ import annotations

import base64
import os
import subprocess
import sys

import cv2
import numpy as np
import pytest

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected, Pixels
from shardmill.infra.codecs.jpeg.header import read_header
from shardmill.infra.codecs.jpeg.turbojpeg import LIBRARY_VARIABLE, library
from tests.samples.images.forms import gradient_image, saved
from tests.samples.images.jpegs import first_scans, noise, sampled_jpeg, scan_count

needs_library = pytest.mark.skipif(library() is None, reason="libturbojpeg is not installed")

# Horizontal and vertical sampling factors of each component.
SAMPLINGS = [
    ((4, 1), (1, 3), (2, 1)),
    ((1, 1), (2, 2), (1, 1)),
    ((2, 2), (2, 1), (1, 2)),
    ((3, 1), (1, 1), (1, 1)),
    ((2, 1), (1, 1), (2, 1)),
    ((1, 1), (2, 1), (2, 1)),
    ((1, 3), (1, 1), (1, 1)),
]
INK_SAMPLINGS = [
    ((1, 1), (1, 1), (1, 1), (1, 1)),
    ((2, 2), (1, 1), (1, 1), (1, 1)),
    ((2, 1), (1, 1), (1, 1), (2, 1)),
]


# uint8 [8, 12] of 0, 2, 4, ..., and the same turned three ways as red, green and blue.
LOSSLESS_GREY = (
    "/9j/4AAQSkZJRgABAQAAAQABAAD/wwALCAAIAAwBAREA/8QAFgABAQEAAAAAAAAAAAAAAAAAAgUI/9oACAEBAAEAAM/pJJJJKwkkkkkr"
    "CSSSSSsJJJJJKwkkkkkrCSSSSSsJJJJJKwkkkkkv/9k="
)
LOSSLESS_RGB = (
    "/9j/7gAOQWRvYmUAZAAAAAAA/8MAEQgACAAMA1IRAEcRAEIRAP/EABgAAQEAAwAAAAAAAAAAAAAAAAIFBgcI/9oADANSAEcAQgABAADn"
    "/KNKpFIpFIpFIpFIpFIpGxHsJFIpFIpFIpFIpFIpGxHsJFIpFIpFIpFIpFIpGxHsJFIpFIpFIpFIpFIpGxHsJFIpFIpFIpFIpFIpGxHs"
    "JFIpFIpFIpFIpFIpGxHsJFIpFIpFIpFIpFIpGxHsJFIpFIpFIpFIpFIpH//Z"
)


def opencv(data: bytes) -> Pixels:
    decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    assert decoded is not None
    return np.asarray(decoded, np.uint8)


@needs_library
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_unusual_samplings_of_ycbcr(sampling: tuple[tuple[int, int], ...]) -> None:
    y, cb, cr = np.moveaxis(noise(), 2, 0)
    data = sampled_jpeg((y, cb, cr), sampling)
    assert np.array_equal(codecs.decode(data).pixels, opencv(data))
    assert np.abs(codecs.decode(data, 1).pixels[:, :, 0].astype(int) - y).mean() < 16


@needs_library
@pytest.mark.parametrize("sampling", INK_SAMPLINGS, ids=str)
def test_unusual_samplings_of_cmyk(sampling: tuple[tuple[int, int], ...]) -> None:
    data = sampled_jpeg(list(np.moveaxis(noise(channels=4), 2, 0)), sampling)
    decoded = codecs.decode(data)
    assert decoded.source.color == "CMYK"
    # OpenCV multiplies the inks with another rounding.
    assert np.abs(decoded.pixels.astype(int) - opencv(data)).max() <= 2


@needs_library
def test_an_unusual_sampling_that_ends_early_is_truncated_and_salvaged() -> None:
    data = sampled_jpeg(list(np.moveaxis(noise(), 2, 0)), SAMPLINGS[0])
    cut = data[: data.rindex(b"\xff\xda") + 100]
    with pytest.raises(ImageRejected) as caught:
        codecs.decode(cut)
    assert caught.value.reason == "truncated"
    salvaged = codecs.decode(cut, 1, allow_truncated=True)
    assert salvaged.source.salvaged
    assert np.array_equal(salvaged.pixels, codecs.decode(data, 1).pixels)  # it is red that is missing


def test_without_libturbojpeg_an_unusual_sampling_is_refused_with_a_remedy() -> None:
    code = """if True:
        from shardmill.infra import codecs
        from tests.samples.images.jpegs import noise, sampled_jpeg
        planes = [noise()[:, :, channel] for channel in range(3)]
        try:
            codecs.decode(sampled_jpeg(planes, ((3, 1), (1, 1), (1, 1))))
        except codecs.ImageRejected as rejected:
            print(rejected.reason, rejected.message)
    """
    environment = os.environ | {LIBRARY_VARIABLE: "none"}
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert said.startswith("unsupported")
    assert "install libturbojpeg" in said


@pytest.mark.parametrize("options", [{}, {"restart_marker_blocks": 4}])
def test_zeros_after_a_scan_are_no_damage(options: dict[str, int]) -> None:
    data = saved(gradient_image(), "JPEG", quality=95, **options)
    padded = data[:-2] + bytes(300) + data[-2:]
    if options:
        at = data.index(b"\xff\xd1")
        padded = data[:at] + bytes(7) + data[at:]
    assert np.array_equal(codecs.decode(padded).pixels, codecs.decode(data).pixels)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_lossless_process_of_8_bits(channels: int) -> None:
    grey = (2 * np.arange(96, dtype=np.uint8)).reshape(8, 12)
    decoded = codecs.decode(base64.b64decode(LOSSLESS_GREY), channels)
    assert decoded.source.color == "grey lossless"
    assert np.array_equal(decoded.pixels, np.repeat(grey[:, :, None], channels, axis=2))
    color = codecs.decode(base64.b64decode(LOSSLESS_RGB))
    assert color.source.color == "RGB lossless"
    assert np.array_equal(color.pixels, np.stack([grey, grey[::-1], grey[:, ::-1]], axis=2))


def test_lossless_samples_of_12_bits_are_refused_for_their_depth() -> None:
    data = base64.b64decode(LOSSLESS_GREY).replace(b"\xff\xc3\x00\x0b\x08", b"\xff\xc3\x00\x0b\x0c")
    with pytest.raises(ImageRejected, match="12 bits a sample; only those of 8 bits are read") as caught:
        codecs.decode(data)
    assert caught.value.reason == "unsupported"


STRAY = {
    "any bytes": bytes(range(1, 100)),
    "stuffed bytes": bytes((1, 2, 0xFF, 0, 4, 0xFF, 0, 9)) * 5,
    "fill bytes": b"abc" + b"\xff" * 4,
    "a restart": b"ab\xff\xd3cd",
    "a segment": b"ab\xff\xe1\x00\x10" + bytes(14),
    "a marker that does not exist": b"abc\xff\x3cdef",
    "a comment without an end": b"ab\xff\xfe\xff\xff",
}


@pytest.mark.parametrize("stray", STRAY.values(), ids=STRAY)
@pytest.mark.parametrize("options", [{}, {"restart_marker_blocks": 4}, {"progressive": True}], ids=str)
def test_stray_bytes_before_the_end_are_no_damage(options: dict[str, int], stray: bytes) -> None:
    """Photographs of the dataset "cats and dogs" have 99 to 2,230 such bytes."""
    data = saved(gradient_image(), "JPEG", quality=95, **options)
    assert np.array_equal(codecs.decode(data[:-2] + stray + data[-2:]).pixels, codecs.decode(data).pixels)


def test_stray_bytes_between_the_scans_are_no_damage() -> None:
    data = saved(gradient_image(), "JPEG", quality=95, progressive=True)
    scan = data.rindex(b"\xff\xda")
    table = data.rindex(b"\xff\xc4")
    for at in (scan, table, len(data) - 2):
        if at == scan and scan < table + 200:
            continue  # its table stands directly before it, where no bytes of a scan are
        stray = data[:at] + bytes(range(1, 60)) + data[at:-2] + bytes(range(1, 60)) + data[-2:]
        assert np.array_equal(codecs.decode(stray).pixels, codecs.decode(data).pixels)


def test_stray_bytes_hide_no_missing_rows() -> None:
    data = saved(gradient_image(), "JPEG", quality=95)
    with pytest.raises(ImageRejected) as caught:
        codecs.decode(data[:-400] + b"\xff\x3c" + data[-2:])
    assert caught.value.reason in ("truncated", "corrupt")


@pytest.mark.parametrize("components", [1, 3])
def test_only_the_first_scans_are_no_whole_picture(components: int) -> None:
    picture = gradient_image() if components == 3 else gradient_image().convert("L")
    data = saved(picture, "JPEG", progressive=True)
    assert read_header(data).complete
    for count in range(1, scan_count(data)):
        cut = first_scans(data, count)
        with pytest.raises(ImageRejected, match="its last scans") as caught:
            codecs.decode(cut)
        assert caught.value.reason == "truncated"
        salvaged = codecs.decode(cut, allow_truncated=True)
        assert salvaged.source.salvaged
        assert salvaged.pixels.shape == (48, 64, 3)


def test_a_missing_component_is_a_missing_scan() -> None:
    data = sampled_jpeg(list(np.moveaxis(noise(), 2, 0)), [(1, 1)] * 3)
    assert np.array_equal(codecs.decode(data).pixels, opencv(data))
    with pytest.raises(ImageRejected) as caught:
        codecs.decode(first_scans(data, 2))
    assert caught.value.reason == "truncated"


def test_an_end_mark_within_a_table_hides_no_scan() -> None:
    data = saved(gradient_image(), "JPEG", progressive=True)
    second = data.index(b"\xff\xda", data.index(b"\xff\xda") + 2)
    commented = data[:second] + b"\xff\xfe\x00\x06\xff\xd9\xff\xd9" + data[second:]
    assert read_header(commented).complete
    assert np.array_equal(codecs.decode(commented).pixels, codecs.decode(data).pixels)
