"""Colours of videos against the equations of H.273 in float64, and turned frames."""

from __future__ import annotations

import io
from typing import Any

import av
import numpy as np
import pytest

from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs.color.video import Coding, rgb_of, upright, yuv_to_rgb
from tests.samples.images.videos import video

WEIGHTS = {1: (0.2126, 0.0722), 6: (0.299, 0.114)}


def expected(planes: list[np.ndarray], matrix: int, bits: int, is_full: bool) -> np.ndarray:
    """R'G'B' of 0 to 255 in float64, from planes of one size."""
    scale = 2.0 ** (bits - 8)
    y, cb, cr = (plane.astype(np.float64) for plane in planes)
    if is_full:
        y, cb, cr = (one / (2**bits - 1) for one in (y, cb - 128 * scale, cr - 128 * scale))
    else:
        y, cb, cr = (y / scale - 16) / 219, (cb / scale - 128) / 224, (cr / scale - 128) / 224
    kr, kb = WEIGHTS[matrix]
    inverse = np.linalg.inv(
        [
            [kr, 1 - kr - kb, kb],
            [-kr / (2 * (1 - kb)), -(1 - kr - kb) / (2 * (1 - kb)), 0.5],
            [0.5, -(1 - kr - kb) / (2 * (1 - kr)), -kb / (2 * (1 - kr))],
        ]
    )
    return np.clip(255 * np.stack([y, cb, cr], -1) @ inverse.T, 0, 255)


def planes(bits: int, height: int = 32, width: int = 40) -> list[np.ndarray]:
    kind = np.uint8 if bits == 8 else np.uint16
    return list(np.random.default_rng(bits).integers(0, 1 << bits, (3, height, width)).astype(kind))


@pytest.mark.parametrize("matrix", WEIGHTS)
@pytest.mark.parametrize("bits", [8, 10])
@pytest.mark.parametrize("is_full", [False, True])
def test_equations(matrix: int, bits: int, is_full: bool) -> None:
    samples = planes(bits)
    found = yuv_to_rgb(samples, Coding(matrix, bits, is_full, (0, 0)))
    assert np.abs(found - expected(samples, matrix, bits, is_full)).max() < 0.501


@pytest.mark.parametrize(
    ("pixels", "bits", "down", "across"),
    [
        ("yuv420p", 8, 2, 2),
        ("yuv422p", 8, 1, 2),
        ("yuv444p", 8, 1, 1),
        ("yuv420p10le", 10, 2, 2),
        ("yuv411p", 8, 1, 4),
    ],
)
@pytest.mark.parametrize(
    "tags", [{}, {"colorspace": 1}, {"color_range": 2}, {"colorspace": 1, "color_range": 2}]
)
def test_frames_of_a_lossless_video(
    pixels: str, bits: int, down: int, across: int, tags: dict[str, int]
) -> None:
    """An odd size, subsampled colours and tags, through an encoder and a decoder without loss."""
    height, width = 133, 44 if across == 4 else 45  # FFV1 itself loses the last column of 4:1:1
    luma, *chroma = planes(bits, height, width)
    stored = [luma, *(plane[: -(-height // down), : -(-width // across)].copy() for plane in chroma)]
    data = video([0], "ffv1", "matroska", size=(height, width), pixels=pixels, planes=stored, tags=tags)
    whole = [luma, *(np.kron(p, np.ones((down, across), p.dtype))[:height, :width] for p in stored[1:])]
    right = expected(whole, tags.get("colorspace", 6), bits, tags.get("color_range") == 2)
    assert np.abs(rgb_of(only_frame(data)) - right).max() < 0.501


def only_frame(data: bytes) -> Any:
    with av.open(io.BytesIO(data)) as container:
        return next(container.decode(video=0))


@pytest.mark.parametrize(
    ("codec", "pixels"),
    [("ffv1", "gray"), ("ffv1", "bgr0"), ("libx264rgb", "rgb24"), ("png", "rgb24"), ("png", "rgba")],
)
def test_other_samples(codec: str, pixels: str) -> None:
    frame = only_frame(video([37], codec, "mov" if codec == "png" else "matroska", pixels=pixels))
    reference = frame.reformat(format="rgba" if pixels == "rgba" else "rgb24").to_ndarray()
    assert np.abs(rgb_of(frame).astype(int) - reference).max() <= (1 if pixels == "gray" else 0)


@pytest.mark.parametrize("form", ["yuyv422", "uyvy422", "nv12"])
def test_samples_in_another_order(form: str) -> None:
    planar = "yuv420p" if form == "nv12" else "yuv422p"
    luma, *colors = planes(8)
    stored = [luma, *(plane[: 16 if form == "nv12" else 32, :20].copy() for plane in colors)]
    frame = only_frame(video([0], "ffv1", "matroska", size=(32, 40), pixels=planar, planes=stored))
    assert np.array_equal(rgb_of(frame.reformat(format=form)), rgb_of(frame))


@pytest.mark.parametrize("tags", [{"colorspace": 9}, {"color_trc": 18}, {"colorspace": 8}])
def test_colours_that_are_not_converted(tags: dict[str, int]) -> None:
    with pytest.raises(ImageRejected, match="not converted"):
        rgb_of(only_frame(video([0], "ffv1", "matroska", tags=tags)))


@pytest.mark.parametrize(
    "matrix", [(1, 0, 0, 1), (-1, 0, 0, 1), (-1, 0, 0, -1), (0, 1, -1, 0), (0, -1, 1, 0), (0, 1, 1, 0)]
)
def test_display_matrices(matrix: tuple[int, int, int, int]) -> None:
    """Each pixel comes to the place that the matrix says, up to a shift into the picture."""
    pixels = np.arange(6, dtype=np.uint8).reshape(2, 3, 1)
    a, b, c, d = matrix
    places = {(a * x + c * y, b * x + d * y): pixels[y, x, 0] for y in range(2) for x in range(3)}
    left, top = (min(place[axis] for place in places) for axis in (0, 1))
    turned = upright(pixels, matrix)
    assert all(turned[y - top, x - left, 0] == value for (x, y), value in places.items())


def test_an_angle_between_is_refused() -> None:
    with pytest.raises(ImageRejected, match="multiple of 90"):
        upright(np.zeros((2, 2, 3), np.uint8), (1, 1, -1, 1))
