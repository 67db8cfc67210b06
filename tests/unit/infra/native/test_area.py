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

from shardmill.infra.native.area import Pixels, area_average, is_compiled
from shardmill.infra.native.library import FOLDER_VARIABLE

needs_compiler = pytest.mark.skipif(not is_compiled(), reason="installed without a C compiler")

# Prints whether compiled code does the work, and the digest of an image that was averaged.
AVERAGE = """
import hashlib
import numpy as np
from shardmill.infra.native.area import area_average, is_compiled
image = np.random.default_rng(5).integers(0, 256, (53, 47, 3), dtype=np.uint8)
print(is_compiled(), hashlib.sha256(area_average(image, (31, 29)).tobytes()).hexdigest())
"""


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


def test_without_compiled_code_opencv_gives_the_same_bytes() -> None:
    image = np.random.default_rng(5).integers(0, 256, (53, 47, 3), dtype=np.uint8)
    done = run_with("none")
    assert done.stdout.split() == ["False", hashlib.sha256(area_average(image, (31, 29))).hexdigest()]


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
