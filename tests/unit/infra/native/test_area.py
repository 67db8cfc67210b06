"""Compiled area averaging gives OpenCV's bytes; OpenCV does the work where there is no compiled code.

``make test-native`` runs this file with code that was compiled with sanitizers.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmill.infra.native.area import AreaAverage, Pixels, area_average, is_compiled, window_average
from shardmill.infra.native.library import FOLDER_VARIABLE

needs_compiler = pytest.mark.skipif(not is_compiled(), reason="installed without a C compiler")

# Prints whether compiled code does the work, and the digest of what it averaged.
AVERAGE = """
from shardmill.infra.native.area import is_compiled
from tests.unit.infra.native.test_area import averaged
print(is_compiled(), averaged())
"""


def averaged() -> str:
    """Digest of an image that was averaged, and of many windows of planes."""
    generator = np.random.default_rng(5)
    image = generator.integers(0, 256, (53, 47, 3), dtype=np.uint8)
    digest = hashlib.sha256(area_average(image, (31, 29)))
    for _ in range(500):
        plane = generator.integers(0, 256, generator.integers(2, 130, 2), dtype=np.uint8)
        window, size = any_window(generator, plane.shape)
        digest.update(window_average(plane, window, size))
    for size in ((31, 29), (53, 47)):
        digest.update(in_bands(image, size, [10, 20, 45]))
    return digest.hexdigest()


def any_window(
    generator: np.random.Generator, shape: tuple[int, ...]
) -> tuple[tuple[float, float, float, float], tuple[int, int]]:
    """A window that begins at an eighth of a pixel and may reach beyond the plane, and a size for it."""
    begins = [int(generator.integers(4 * side)) / 8 for side in shape]
    lengths = [generator.uniform(1, side - begin) for side, begin in zip(shape, begins, strict=True)]
    size = int(generator.integers(1, int(lengths[0]) + 1)), int(generator.integers(1, int(lengths[1]) + 1))
    beyond = generator.choice([0, 0.3], 2) / size  # of the last new pixel
    return (*begins, lengths[0] * (1 + beyond[0]), lengths[1] * (1 + beyond[1])), size


def with_opencv(image: Pixels, size: tuple[int, int]) -> Any:
    return cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA).reshape(*size, *image.shape[2:])


def run_with(folder: str) -> subprocess.CompletedProcess[str]:
    """Average an image in a new process that takes compiled code from ``folder``."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    command = [sys.executable, "-c", AVERAGE]
    return subprocess.run(
        command, env=environment | {FOLDER_VARIABLE: folder}, capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(not os.environ.get(FOLDER_VARIABLE), reason="no build is chosen by the environment")
def test_the_chosen_build_is_in_use() -> None:
    assert is_compiled()


@needs_compiler
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_the_bytes_are_those_of_opencv(data: st.DataObject) -> None:
    height, width = (data.draw(st.integers(1, 260)) for _ in range(2))
    size = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    channels = data.draw(st.sampled_from([(), (1,), (3,)]))
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    image = generator.integers(0, 256, (height, width, *channels), dtype=np.uint8)
    if data.draw(st.booleans()):
        image[:] = image.flat[0]
    assert np.array_equal(area_average(image, size), with_opencv(image, size))
    cuts = sorted(data.draw(st.sets(st.integers(1, height), max_size=5)))
    assert np.array_equal(in_bands(image, size, cuts), with_opencv(image, size))


def in_bands(image: Pixels, size: tuple[int, int], cuts: list[int]) -> Pixels:
    average = AreaAverage(image.shape, size)
    for band in np.split(image, cuts):
        average.add(band)
    return average.result()


@needs_compiler
@pytest.mark.parametrize(
    ("shape", "size"),
    [((533, 400), (341, 256)), ((4000, 3000), (341, 256)), ((9, 5000), (2, 3)), ((66, 65_500), (65, 65_499))],
)
def test_large_and_long_photographs(shape: tuple[int, int], size: tuple[int, int]) -> None:
    image = np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(area_average(image, size), with_opencv(image, size))


@needs_compiler
@pytest.mark.parametrize(
    "view",
    [lambda image: image[7:70, 11:90], lambda image: image[:, ::2], lambda image: image[::-1]],
    ids=["window", "every other column", "rows backwards"],
)
def test_views_of_a_plane(view: Callable[[Pixels], Pixels]) -> None:
    image = view(np.random.default_rng(4).integers(0, 256, (90, 120), dtype=np.uint8))
    assert np.array_equal(area_average(image, (31, 29)), with_opencv(np.ascontiguousarray(image), (31, 29)))


def test_without_compiled_code_opencv_and_numpy_give_the_same_bytes() -> None:
    assert run_with("none").stdout.split() == ["False", averaged()]


def area_weights(length: int, begin: float, covered: float, new: int) -> Any:
    """float64 [new, length]: how much of each new pixel lies in each old one."""
    edges = begin + np.arange(new + 1) * covered / new
    places = np.arange(length)
    shared = np.minimum(edges[1:, np.newaxis], places + 1) - np.maximum(edges[:-1, np.newaxis], places)
    shared = np.clip(shared, 0, None)
    return shared / shared.sum(axis=1, keepdims=True)


def test_windows_are_averaged_as_in_float64() -> None:
    generator = np.random.default_rng(6)
    for _ in range(500):
        plane = generator.integers(0, 256, generator.integers(2, 130, 2), dtype=np.uint8)
        (top, left, height, width), size = any_window(generator, plane.shape)
        down = area_weights(plane.shape[0], top, height, size[0])
        across = area_weights(plane.shape[1], left, width, size[1])
        found = window_average(plane, (top, left, height, width), size)
        # A new pixel leaves out parts of less than a thousandth of an old one, and is rounded.
        assert np.abs(found - down @ plane @ across.T).max() <= 0.5 + 4 * 255e-3


@pytest.mark.parametrize("content", [None, b"of another machine"], ids=["absent", "not loadable"])
def test_a_chosen_folder_without_a_usable_library_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / f"_area{importlib.machinery.EXTENSION_SUFFIXES[0]}").write_bytes(content)
    done = run_with(str(tmp_path))
    assert done.returncode != 0
    assert "ConfigError" in done.stderr
    assert str(tmp_path) in done.stderr


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
def test_code_that_gives_other_bytes_is_not_used(tmp_path: Path) -> None:
    source = tmp_path / "wrong.c"
    source.write_text("int shardmill_area() { return 0; }")
    library = tmp_path / f"_area{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    assert run_with(str(tmp_path)).stdout == run_with("none").stdout
