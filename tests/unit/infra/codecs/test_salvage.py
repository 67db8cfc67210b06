"""Images that end early: told apart from damaged ones, and salvaged on request."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from shardmill.infra import codecs
from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs.pillow.decode import no_warnings
from tests.samples.images.forms import saved


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
    assert decoded.source.salvaged
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
    assert not decoded.source.salvaged
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
