"""The models: what is wrong with one is said before anything is trained."""

from __future__ import annotations

import pkgutil
import sys
from pathlib import Path
from typing import Literal

import pytest

from shardmill.infra.errors import ConfigError
from shardmill.training import models
from shardmill.training.models import ModelSpec, default_image_size
from shardmill.training.models.names import FAMILIES
from shardmill.training.tensorflow.models import build_model, families


def test_a_model_of_ones_own_is_built() -> None:
    assert default_image_size("tests.samples.models.linear_model") == 8
    model = build_model(ModelSpec("tests.samples.models.linear_model", num_classes=3, image_size=8))
    assert model.output_shape == (None, 3)


@pytest.mark.parametrize("name", ["MobileNetV2", "InceptionV3", "VGG16"])
def test_images_that_are_too_small_are_an_error_of_the_configuration(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be built for images of 16 pixels") as caught:
        build_model(ModelSpec(name, num_classes=3, image_size=16))
    assert "data.image_size" in str(caught.value.remedy)


@pytest.mark.parametrize("output", ["classes", "objects"])
def test_a_model_for_masks_is_refused_for_other_labels(output: Literal["classes", "objects"]) -> None:
    with pytest.raises(ConfigError, match="small_unet is for masks"):
        build_model(ModelSpec("small_unet", num_classes=3, image_size=64, output=output))


@pytest.mark.parametrize("name", ["own_wide_model.shapes", "own_wide_model.shapes:make"])
def test_a_module_that_is_no_model_says_what_is_missing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    function = name.partition(":")[2] or "build"
    (tmp_path / "own_wide_model").mkdir()
    (tmp_path / "own_wide_model/shapes.py").write_text(
        f"from types import SimpleNamespace\n\n\ndef {function}(spec):\n"
        "    return SimpleNamespace(output_shape=(None, 4))\n"
    )
    with pytest.raises(ConfigError, match=r"shapes\.py has no function other"):
        build_model(ModelSpec("own_wide_model.shapes:other", num_classes=3, image_size=8))
    with pytest.raises(ConfigError, match=r"\(None, 4\), not \(None, 3\)"):
        build_model(ModelSpec(name, num_classes=3, image_size=8))
    with pytest.raises(ConfigError, match="no DEFAULT_IMAGE_SIZE"):
        default_image_size(name)
    for module in ("own_wide_model", "own_wide_model.shapes"):
        del sys.modules[module]


def test_the_table_of_families_names_their_files() -> None:
    found = {info.name for info in pkgutil.iter_modules(families.__path__)}
    assert set(FAMILIES["tensorflow"]) == found


def test_functions_of_earlier_releases_are_found_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"shardmill.training.tensorflow.models.build_model"):
        assert models.build_model is build_model
