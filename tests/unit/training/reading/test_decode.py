"""Windows decoded outside TensorFlow: TensorFlow's pixels within a tolerance, and damage said as such."""

from __future__ import annotations

import io
import itertools
import math
import threading

import cv2
import numpy as np
import pytest
import simplejpeg
from PIL import Image

from shardmill.infra.codecs import Pixels, encode_jpeg
from shardmill.infra.codecs.jpeg.segments import first_rows
from shardmill.infra.errors import CorruptDataError
from shardmill.training.reading.decode import Window, cut_window, decode_window, resize_into
from tests.samples.images.jpegs import noise, sampled_jpeg
from tests.samples.images.photos import picture

SIZE = 32


def window_of(image: bytes, shape: tuple[int, int, int], window: Window, encoding: str = "jpeg") -> Pixels:
    out = np.empty((SIZE, SIZE, 3), np.uint8)
    decode_window(image, encoding, shape, window, out)
    return out


def psnr(found: Pixels, wanted: Pixels) -> float:
    error = np.mean((found.astype(float) - wanted.astype(float)) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


# What shrinks by more than a half is averaged, the rest interpolated; from three times the size on, a JPEG is
# decoded at a fraction, which is another filter.
@pytest.mark.parametrize(
    ("window", "mean_difference", "least_psnr"),
    [
        ((10, 20, 32, 32), 0.6, 44),  # as it is
        ((3, 5, 20, 30), 0.6, 44),  # grows
        ((0, 0, 36, 40), 0.6, 44),  # shrinks a little
        ((8, 1, 47, 52), 0.6, 44),  # averaged
        ((8, 1, 24, 60), 0.6, 44),  # averaged across, interpolated down
        ((16, 8, 128, 160), 1.5, 36),  # decoded at a half, on even edges
        ((1, 3, 131, 133), 1.5, 36),  # decoded at a half
    ],
)
def test_pixels_are_those_of_tensorflow(window: Window, mean_difference: float, least_psnr: float) -> None:
    from shardmill.training.tensorflow.data import preprocess

    for seed in range(4):
        image = encode_jpeg(picture(seed, 150, 200), 90)
        found = window_of(image, (150, 200, 3), window)
        wanted = preprocess.decode_window(image, [150, 200, 3], list(window), SIZE).numpy()
        difference = np.abs(found.astype(int) - wanted.astype(int))
        assert difference.mean() <= mean_difference
        assert psnr(found, wanted) >= least_psnr


@pytest.mark.parametrize("fraction", [2, 4, 8])
def test_large_windows_are_decoded_at_a_fraction(fraction: int, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    original = simplejpeg.decode_jpeg
    monkeypatch.setattr(
        simplejpeg,
        "decode_jpeg",
        lambda *args, **options: decoded.append(original(*args, **options)) or decoded[-1],
    )
    side = SIZE * 3 * fraction // 2 + 3  # not divided evenly
    pixels = picture(1, side, side + 10)
    image = encode_jpeg(pixels, 95)
    found = window_of(image, (side, side + 10, 3), (0, 0, side, side))
    assert decoded[0].shape[:2] == (-(-side // fraction), -(-(side + 10) // fraction))
    wanted = cv2.resize(pixels[:, :side], (SIZE, SIZE), interpolation=cv2.INTER_AREA)
    assert psnr(found, wanted) > 26
    decoded.clear()
    out = np.empty((SIZE, SIZE, 3), np.uint8)
    decode_window(image, "jpeg", pixels.shape, (0, 0, side, side), out, decoding="whole")
    assert decoded[0].shape == pixels.shape


def averaged_in_float64(image: bytes, window: Window) -> Pixels:
    """Average the window by area, of the picture as Pillow decodes it: uint8 [SIZE, SIZE, 3]."""
    pixels = np.asarray(Image.open(io.BytesIO(image)), np.float64)
    for start, length in zip(window[:2], window[2:], strict=True):
        begins = start + np.arange(SIZE)[:, np.newaxis] * length / SIZE
        places = np.arange(pixels.shape[0])
        shares = np.minimum(begins + length / SIZE, places + 1) - np.maximum(begins, places)
        pixels = np.tensordot(shares.clip(0) * SIZE / length, pixels, 1).swapaxes(0, 1)
    return pixels.round().astype(np.uint8)


# How many times as large as the image the window is, and the floor of scaled decoding (dB).
@pytest.mark.parametrize(("times", "least_psnr"), [(3.1, 40), (4.3, 42), (5.8, 43), (6.2, 35), (12.1, 29)])
def test_scaled_pixels_are_near_to_averaging_in_float64(times: float, least_psnr: float) -> None:
    side = round(SIZE * times)
    for seed in range(3):
        image = encode_jpeg(picture(seed, side + 30, side + 41), 95)
        window = (7, 13 + seed, side + 3, side)
        found = window_of(image, (side + 30, side + 41, 3), window)
        assert psnr(found, averaged_in_float64(image, window)) >= least_psnr


def _jpeg(pixels: Pixels, *options: int) -> bytes:
    """A JPEG by OpenCV, with its IMWRITE options."""
    return bytes(cv2.imencode(".jpg", pixels, list(options))[1])


_FORMS = {
    "4:2:0": _jpeg(picture(7, 600, 400)),
    "4:4:4": _jpeg(picture(7, 600, 400), cv2.IMWRITE_JPEG_SAMPLING_FACTOR, 0x111111),
    "4:2:2": _jpeg(picture(7, 600, 400), cv2.IMWRITE_JPEG_SAMPLING_FACTOR, 0x211111),
    "4:4:0": _jpeg(picture(7, 600, 400), cv2.IMWRITE_JPEG_SAMPLING_FACTOR, 0x121111),
    "4:1:1": _jpeg(picture(7, 600, 400), cv2.IMWRITE_JPEG_SAMPLING_FACTOR, 0x411111),
    "restarts": _jpeg(picture(7, 600, 400), cv2.IMWRITE_JPEG_RST_INTERVAL, 5),
    "grey": _jpeg(picture(7, 600, 400)[:, :, 0]),
    "progressive": _jpeg(picture(7, 600, 400), cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "a scan for each component": sampled_jpeg(
        [*noise(600, 400).transpose(2, 0, 1)], [(2, 2), (1, 1), (1, 1)]
    ),
}


@pytest.mark.parametrize("form", _FORMS)
def test_rows_below_the_window_change_no_pixel(form: str) -> None:
    image = _FORMS[form]
    for bottom, scale in itertools.product(range(70, 600, 23), (1, 2)):
        whole = simplejpeg.decode_jpeg(image, min_height=600 // scale, min_width=200, min_factor=scale)
        window = (bottom - 64 * scale, 4, 64 * scale, 64 * scale)
        if window[0] >= 0:
            found = cut_window(image, "jpeg", (600, 400, 3), window, SIZE if scale > 1 else 64)
            top, left, bottom, right = (at / scale for at in (window[0], 4, bottom, 4 + window[3]))
            part = whole[int(top) : math.ceil(bottom), int(left) : math.ceil(right)]
            assert np.array_equal(found.pixels, part), window
    rows = first_rows(image, (600, 400), 100)[1]
    assert rows == (600 if form in ("progressive", "a scan for each component") else 112)


def test_averaging_and_growing_side_by_side() -> None:
    """Stripes a pixel wide become grey across, while the image grows down."""
    stripes = np.zeros((8, 120, 3), np.uint8)
    stripes[:, ::2] = 255
    out = np.empty((16, 30, 3), np.uint8)
    resize_into(stripes, out)
    assert np.abs(out.astype(int) - 127).max() <= 1


def test_grey_has_three_equal_channels() -> None:
    grey = encode_jpeg(picture(2)[:, :, :1].copy(), 90)
    found = window_of(grey, (48, 64, 1), (0, 0, 48, 48))
    assert np.ptp(found, axis=2).max() == 0
    assert found.std() > 10


def test_what_the_fast_decoder_does_not_take_goes_to_the_careful_one() -> None:
    sink = io.BytesIO()
    Image.fromarray(picture(3)).convert("CMYK").save(sink, "JPEG", quality=95)
    found = window_of(sink.getvalue(), (48, 64, 3), (8, 8, 32, 32))
    assert psnr(found, picture(3)[8:40, 8:40]) > 25


@pytest.mark.parametrize(
    ("encoding", "image", "message"),
    [
        ("jpeg", b"no image at all", "cannot be decoded"),
        ("jpeg", encode_jpeg(picture(4, 40, 64), 90), r"\(40, 64\) pixels, but its record says \(48, 64\)"),
        ("png", b"no image at all", "cannot be decoded"),
        ("raw", b"12345", "5 bytes do not fill the shape"),
    ],
)
def test_what_is_no_such_image_is_an_error(encoding: str, image: bytes, message: str) -> None:
    with pytest.raises(CorruptDataError, match=message):
        window_of(image, (48, 64, 3), (0, 0, 32, 32), encoding)


def test_threads_do_not_share_their_buffers() -> None:
    images = [encode_jpeg(picture(seed), 90) for seed in range(8)]
    wanted = [window_of(image, (48, 64, 3), (0, 0, 48, 48)) for image in images]
    wrong: list[int] = []

    def decode(first: int) -> None:
        for number in range(first, first + 200):
            found = window_of(images[number % 8], (48, 64, 3), (0, 0, 48, 48))
            if not np.array_equal(found, wanted[number % 8]):
                wrong.append(number)

    threads = [threading.Thread(target=decode, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
