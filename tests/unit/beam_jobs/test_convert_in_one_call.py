"""The ordinary JPEG is converted in one compiled call, with the same result as in steps; others are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from beam_jobs import images as images_module
from beam_jobs.config import FilterConfig, ImageConfig
from beam_jobs.images import ImageFiltered, StoredImage, convert
from infra.codecs import ImageRejected, area, planar
from infra.codecs.libturbojpeg import library
from tests.samples.images import saved
from tests.samples.photos import picture

if library() is None:
    pytest.skip("libturbojpeg is not installed (Debian: apt install libturbojpeg0)", allow_module_level=True)
if not area.is_compiled():
    pytest.skip("nothing was compiled: no C compiler when installing", allow_module_level=True)


def photo(height: int = 200, width: int = 269, **options: Any) -> bytes:
    return saved(Image.fromarray(picture(1, height, width)), "JPEG", **options)


@pytest.fixture
def without_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is not done in one call fails."""

    def fail(*_: object) -> None:
        raise AssertionError("not done in one call")

    monkeypatch.setattr(images_module, "_in_steps", fail)
    monkeypatch.setattr(images_module, "_through_pixels", fail)


def stored(data: bytes, rules: FilterConfig | None = None, **config: Any) -> StoredImage:
    return convert(data, ImageConfig.model_validate({"size": 64, **config}), rules or FilterConfig())


def exif(orientation: int) -> Image.Exif:
    found = Image.Exif()
    found[0x0112] = orientation
    return found


ORDINARY: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"progressive": True}, {}),
    ({"subsampling": 0}, {"quality": 100}),
    ({"exif": exif(1)}, {"passthrough": True}),
    ({}, {"channels": 1}),
    ({}, {"resize": "long", "size": 100}),
    ({}, {"resize": "crop", "height": 64, "width": 86, "size": 64}),
]


@pytest.mark.usefixtures("without_steps")
@pytest.mark.parametrize(("options", "config"), ORDINARY)
def test_the_ordinary_case_is_one_call(options: dict[str, Any], config: dict[str, Any]) -> None:
    data = photo(**options)
    assert stored(data, **config).stored_from == "planes"


@pytest.mark.parametrize(
    ("options", "config"),
    [
        *ORDINARY,
        ({"exif": exif(6)}, {}),
        ({}, {"resize": "crop"}),
        ({}, {"resize": "pad"}),
        ({}, {"resize": "none"}),
        ({}, {"resize": "none", "passthrough": True}),
        ({}, {"size": 300, "upscale": True}),
        # of which one column is cut off at the end, none at the beginning
        ({"width": 270}, {"resize": "crop", "height": 64, "width": 86}),
    ],
)
def test_the_stored_form_is_the_same_either_way(
    options: dict[str, Any], config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = photo(**options)
    one = stored(data, **config)
    monkeypatch.setattr(area, "_left_to_opencv", True)
    assert not planar.is_used()
    other = stored(data, **config)
    assert one.thumbnail.tobytes() == other.thumbnail.tobytes()
    for name in set(StoredImage.__slots__) - {"thumbnail"}:
        assert getattr(one, name) == getattr(other, name), name


@settings(max_examples=150)
@given(data=st.data())
def test_any_size_and_configuration(data: st.DataObject) -> None:
    source = photo(data.draw(st.integers(2, 300)), data.draw(st.integers(2, 300)))
    config: dict[str, Any] = {
        "resize": data.draw(st.sampled_from(["short", "long", "crop", "pad"])),
        "size": data.draw(st.integers(16, 128)),
        "height": data.draw(st.integers(16, 128)),
        "width": data.draw(st.integers(16, 128)),
        "channels": data.draw(st.sampled_from([1, 3])),
        "upscale": data.draw(st.booleans()),
    }
    one = stored(source, **config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(area, "_left_to_opencv", True)
        other = stored(source, **config)
    assert (one.image, one.height, one.width) == (other.image, other.height, other.width)
    assert one.statistics == other.statistics
    assert np.array_equal(one.thumbnail, other.thumbnail)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:900],
        lambda data: data[:-20],
        lambda data: data[:-2],
        lambda data: data[:900] + bytes(reversed(data[900:1500])) + data[1500:],
    ],
)
def test_damage_is_said_as_ever_and_forgotten(damage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = photo()
    damaged = damage(sound)
    small = FilterConfig(min_width=4000)
    said: list[object] = []
    before = stored(sound)
    for _ in range(2):
        for rules in (None, small):
            try:
                said.append(stored(damaged, rules).image)
            except (ImageRejected, ImageFiltered) as error:
                said.append((error.reason, error.message))
        assert stored(sound).image == before.image
        monkeypatch.setattr(area, "_left_to_opencv", True)
    assert said[:2] == said[2:]


def test_filters_speak_only_of_sound_pictures() -> None:
    data, rules = photo(), FilterConfig(max_aspect=1.2)
    with pytest.raises(ImageFiltered):
        stored(data, rules)
    with pytest.raises(ImageRejected):
        stored(data[:3000], rules)
