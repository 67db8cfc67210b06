"""Compiled area averaging gives OpenCV's bytes; where it does not, or is not there, OpenCV does the work."""

from __future__ import annotations

import importlib.machinery
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.codecs import area

if not area.is_compiled():
    pytest.skip("area averaging was not compiled: no C compiler when installing", allow_module_level=True)


@pytest.fixture
def forgotten() -> Iterator[None]:
    """The library is looked for anew, in the test and after it."""
    area._library.cache_clear()
    yield
    area._library.cache_clear()


def opencv(image: area.Pixels, size: tuple[int, int]) -> Any:
    return cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA).reshape(*size, *image.shape[2:])


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
    assert np.array_equal(area.area_average(image, size), opencv(image, size))


@pytest.mark.parametrize(
    ("shape", "size"), [((533, 400), (341, 256)), ((4000, 3000), (341, 256)), ((9, 5000), (2, 3))]
)
def test_photographs_large_and_long(shape: tuple[int, int], size: tuple[int, int]) -> None:
    image = np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(area.area_average(image, size), opencv(image, size))


def test_a_window_of_a_plane_is_read_where_it_lies() -> None:
    whole = np.random.default_rng(4).integers(0, 256, (90, 120), dtype=np.uint8)
    for window in (whole[7:70, 11:90], whole[:, ::2], whole[::-1]):
        assert np.array_equal(
            area.area_average(window, (31, 29)), opencv(np.ascontiguousarray(window), (31, 29))
        )


@pytest.mark.usefixtures("forgotten")
def test_code_that_gives_other_bytes_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    right = area._average
    monkeypatch.setattr(area, "_average", lambda *arguments: right(*arguments) ^ 1)
    assert not area.is_compiled()
    image = np.arange(35, dtype=np.uint8).reshape(5, 7)
    assert np.array_equal(area.area_average(image, (3, 4)), opencv(image, (3, 4)))


@pytest.mark.usefixtures("forgotten")
def test_without_compiled_code_opencv_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.machinery, "EXTENSION_SUFFIXES", [".absent"])
    assert not area.is_compiled()
    image = np.arange(35, dtype=np.uint8).reshape(5, 7)
    assert np.array_equal(area.area_average(image, (3, 4)), opencv(image, (3, 4)))


@pytest.mark.usefixtures("forgotten")
def test_a_library_that_cannot_be_loaded_is_as_good_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"_planar{importlib.machinery.EXTENSION_SUFFIXES[0]}").write_bytes(b"of another machine")
    monkeypatch.setattr(area, "__file__", str(tmp_path / "area.py"))
    assert not area.is_compiled()
