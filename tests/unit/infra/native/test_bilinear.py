"""Compiled interpolation gives OpenCV's bytes; OpenCV does the work where there is no compiled code.

``make test-native`` runs this file with code that was compiled with sanitizers.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from unittest import mock

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmill.infra.native.bilinear import Pixels, is_compiled, resize_bilinear
from shardmill.infra.native.library import FOLDER_VARIABLE

needs_compiled_code = pytest.mark.skipif(not is_compiled(), reason="not compiled, or without AVX2")

# Prints the digest of an image that was resized and mirrored.
RESIZE = """
import hashlib
import numpy as np
from shardmill.infra.native.bilinear import resize_bilinear
image = np.random.default_rng(5).integers(0, 256, (53, 47, 3), dtype=np.uint8)
out = np.empty((61, 40, 3), np.uint8)
resize_bilinear(image, out, mirrored=True)
print(hashlib.sha256(out).hexdigest())
"""


def resized(image: Pixels, size: tuple[int, int], mirrored: bool = False) -> Pixels:
    out = np.empty((*size, 3), np.uint8)
    resize_bilinear(image, out, mirrored)
    return out


def with_opencv(image: Pixels, size: tuple[int, int], mirrored: bool = False) -> Pixels:
    found = cv2.resize(image, size[::-1], interpolation=cv2.INTER_LINEAR)
    return np.asarray(found[:, ::-1] if mirrored else found, np.uint8)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_the_bytes_are_those_of_opencv(data: st.DataObject) -> None:
    height, width, *size = (data.draw(st.integers(1, 260)) for _ in range(4))
    mirrored = data.draw(st.booleans())
    image = np.random.default_rng(data.draw(st.integers(0, 2**32))).integers(
        0, 256, (height, width, 3), dtype=np.uint8
    )
    if data.draw(st.booleans()):
        image[image < 128], image[image >= 128] = 0, 255
    assert np.array_equal(
        resized(image, (size[0], size[1]), mirrored), with_opencv(image, (size[0], size[1]), mirrored)
    )


@pytest.mark.parametrize("size", [(40, 30), (80, 60), (79, 61), (160, 120), (1, 1)])
def test_halves_doubles_and_the_same_size(size: tuple[int, int]) -> None:
    image = np.random.default_rng(6).integers(0, 256, (80, 60, 3), dtype=np.uint8)
    assert np.array_equal(resized(image, size), with_opencv(image, size))
    assert np.array_equal(resized(image, size, True), with_opencv(image, size, True))


@pytest.mark.parametrize(
    "view",
    [
        lambda image: image[7:70, 11:90],
        lambda image: image[-5:, -4:],
        lambda image: image[:, ::2],
        lambda image: image[::-1],
        lambda image: image[:, :, ::-1],
    ],
    ids=["window", "last corner", "every other column", "rows backwards", "channels backwards"],
)
def test_views_of_an_image(view: Callable[[Pixels], Pixels]) -> None:
    image = view(np.random.default_rng(4).integers(0, 256, (90, 120, 3), dtype=np.uint8))
    assert np.array_equal(resized(image, (31, 29)), with_opencv(np.ascontiguousarray(image), (31, 29)))


def test_only_the_rows_of_the_result_are_written() -> None:
    image = np.random.default_rng(4).integers(0, 256, (20, 25, 3), dtype=np.uint8)
    around = np.full((40, 50, 3), 77, np.uint8)
    resize_bilinear(image, around[3:36, 5:42])
    assert np.array_equal(around[3:36, 5:42], with_opencv(image, (33, 37)))
    around[3:36, 5:42] = 77
    assert (around == 77).all()


@needs_compiled_code
def test_compiled_code_does_the_work() -> None:
    with mock.patch.object(cv2, "resize", side_effect=AssertionError("OpenCV resizes")):
        resized(np.zeros((20, 30, 3), np.uint8), (31, 29))


def test_without_compiled_code_opencv_gives_the_same_bytes() -> None:
    image = np.random.default_rng(5).integers(0, 256, (53, 47, 3), dtype=np.uint8)
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        [sys.executable, "-c", RESIZE],
        env=environment | {FOLDER_VARIABLE: "none"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == hashlib.sha256(resized(image, (61, 40), True)).hexdigest()
