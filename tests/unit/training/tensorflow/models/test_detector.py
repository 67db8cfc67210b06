"""Detectors on several backbones: their maps, initial weights and frozen layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.infra.errors import ConfigError

keras = pytest.importorskip("keras")

from shardmill.training.models import ModelSpec  # noqa: E402
from shardmill.training.tensorflow.models import build_model  # noqa: E402
from shardmill.training.tensorflow.models.detector import build_backbone  # noqa: E402
from shardmill.training.tensorflow.models.layers import HeadAlone, freeze_layers  # noqa: E402
from shardmill.training.tensorflow.models.weights import load_initial  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of Keras

SPEC = ModelSpec("small_cnn", 3, 64, output="objects")
BACKBONES = [
    "small_cnn",
    "compact_resnet",
    "MobileNetV3Small",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("ResNet50", "EfficientNetB0", "DenseNet121", "VGG16")
    ),
]


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_has_cells_of_eight_sixteen_and_thirty_two_pixels(name: str) -> None:
    model = build_model(replace(SPEC, name=name))
    assert model.output_shape == (None, 64 + 16 + 4, 3 + 4)
    images = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), dtype=np.uint8)
    outputs = model(images, training=True).numpy()  # otherwise untrained averages normalise nothing
    assert np.isfinite(outputs).all()
    chances = 1 / (1 + np.exp(-outputs[..., :3]))
    assert chances.mean() == pytest.approx(0.01, abs=0.001), "nearly everything is background at the start"


def test_a_backbone_has_the_strides_that_the_network_has() -> None:
    def backbone(spec: ModelSpec, strides: tuple[int, ...]) -> Any:
        return build_backbone(build_model(replace(spec, output="classes")), spec, strides)

    assert backbone(replace(SPEC, name="compact_resnet"), (4, 8, 16, 32))[1] == (4, 8, 16, 32)
    assert backbone(SPEC, (2, 8, 32))[1] == (2, 8)
    grey = backbone(replace(SPEC, name="MobileNetV3Small", image_channels=1), (8, 16, 32))
    assert grey[0].input_shape == (None, 64, 64, 1)


def test_images_and_models_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="a multiple of 32") as refused:
        build_model(replace(SPEC, image_size=100))
    assert "96" in str(refused.value.remedy)
    with pytest.raises(ConfigError, match="no layer whose output"):
        build_model(replace(SPEC, name="tests.samples.models.linear_model"))


def test_weights_of_a_classifier_are_those_of_the_backbone(tmp_path: Path) -> None:
    classifier = build_model(replace(SPEC, output="classes", num_classes=7))
    path = str(tmp_path / "classes.weights.h5")
    classifier.save_weights(path)
    spec = replace(SPEC, weights=path)
    model = build_model(spec)
    assert load_initial(model, spec) is None, "the backbone has them already"
    for mine, theirs in zip(
        model.get_layer("backbone").get_weights(), classifier.get_weights(), strict=False
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "classes.weights.h5")
    build_model(replace(SPEC, output="classes")).save_weights(path)
    with pytest.raises(ConfigError, match=r"\d+ of \d+ layers of the model are not in it"):
        build_model(replace(SPEC, name="compact_resnet", weights=path))


def test_layers_that_do_not_fit_keep_their_weights_where_that_is_asked_for(tmp_path: Path) -> None:
    path = str(tmp_path / "classes.weights.h5")
    grey = replace(SPEC, output="classes", num_classes=7, image_channels=1)
    classifier = build_model(grey)
    classifier.save_weights(path)
    with pytest.raises(ConfigError, match="1 of 9 layers of the model are not in it, or have other shapes"):
        build_model(replace(SPEC, weights=path))
    model = build_model(replace(SPEC, weights=path, partial_weights=True))
    assert all(np.isfinite(weights).all() for weights in model.get_weights())


def test_weights_of_a_detector_fit_another_number_of_classes(tmp_path: Path) -> None:
    before = build_model(SPEC)
    path = str(tmp_path / "objects.weights.h5")
    before.save_weights(path)
    spec = replace(SPEC, num_classes=5, weights=path, seed=9)
    model = build_model(spec)
    taken = load_initial(model, spec)
    assert taken is not None
    assert list(taken.missing) == ["classes"]
    same = [np.array_equal(*pair) for pair in zip(model.get_weights(), before.get_weights(), strict=True)]
    assert same.count(False) == 2, "kernel and bias of the classes"


def test_missing_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file of weights"):
        build_model(replace(SPEC, weights=str(tmp_path / "none.weights.h5")))


def test_the_backbone_is_frozen_and_the_rest_learns() -> None:
    model = build_model(SPEC)
    freeze_layers(model, "backbone")
    backbone = model.get_layer("backbone")
    assert not backbone.trainable_variables
    assert len(model.trainable_variables) == len(model.variables) - len(backbone.variables) - _moving(
        model
    ) + _moving(backbone)
    again = build_model(SPEC)
    alone = HeadAlone(again)
    alone.begin()
    assert not again.get_layer("backbone").trainable_variables
    alone.end()
    assert again.get_layer("backbone").trainable_variables


def _moving(model: keras.Model) -> int:
    return sum("moving" in variable.name for variable in model.variables)
