"""Other forms of the model predict what the model predicts, or there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill import Dataset, open_dataset
from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.preparation import Preparation
from shardmill.infra.progress import subscribe
from shardmill.training.config import AugmentSettings, ExportSettings
from shardmill.training.export.model_input import ModelInput
from shardmill.training.models import ModelSpec
from shardmill.training.ranks.heartbeat import Heart, Work, prepare, read
from shardmill.training.tasks.single_label import ClassMeasure
from shardmill.training.tensorflow.export.forms import Exported, FormsRequest, compare, write_forms
from shardmill.training.tensorflow.models import build_model
from tests.samples.datasets.published import coloured, digits, publish


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("datasets")
    publish(root, coloured({"train": {"a": 20, "b": 20}, "test": {"a": 9, "b": 6}}), name="set")
    return open_dataset("set", root=root)


def of_classes(model: Any) -> Exported:
    from shardmill.training.tasks.single_label import SingleLabel
    from shardmill.training.tensorflow.operations import OPERATIONS

    given = ModelInput(preparation=Preparation(), image_size=model.input_shape[1])
    return Exported(model, SingleLabel(OPERATIONS, model.output_shape[1]), ["a", "b"], given)


@pytest.fixture(scope="module")
def exported() -> Exported:
    """A model whose probabilities differ from image to image."""
    import keras

    keras.utils.set_random_seed(3)
    return of_classes(build_model(ModelSpec("small_cnn", num_classes=2, image_size=16)))


def request(dataset: Dataset, **settings: Any) -> FormsRequest:
    return FormsRequest(
        ExportSettings.model_validate(settings), dataset.reader("train"), dataset.reader("test")
    )


def test_litert_predicts_as_the_model_does_and_int8_is_smaller(
    dataset: Dataset, exported: Exported, tmp_path: Path
) -> None:
    asked = request(dataset, formats=["litert", "litert-int8"], max_accuracy_loss=1.0)
    written = write_forms(exported, asked, tmp_path)
    assert [set(figures) & {"problem"} for figures in written.values()] == [set(), set()]
    for figures in written.values():
        assert Path(figures["path"]).stat().st_size == figures["size_bytes"]
        assert (figures["split"], figures["num_examples"]) == ("test", 15)
    exact, small = written["litert"], written["litert-int8"]
    assert exact["max_difference"] < 1e-5
    assert exact["agreement"] == 1.0
    assert exact["accuracy"] == exact["model_accuracy"]
    assert small["max_difference"] < 0.05
    assert small["size_bytes"] < 0.4 * exact["size_bytes"]


def test_onnx_predicts_as_the_model_does(dataset: Dataset, exported: Exported, tmp_path: Path) -> None:
    pytest.importorskip("tf2onnx")
    pytest.importorskip("onnxruntime")
    figures = write_forms(exported, request(dataset, formats=["onnx"]), tmp_path)["onnx"]
    assert Path(figures["path"]).name == "model.onnx"
    assert Path(figures["path"]).stat().st_size == figures["size_bytes"]
    assert (figures["split"], figures["num_examples"], figures["agreement"]) == ("test", 15, 1.0)
    assert figures["max_difference"] < 1e-5


def test_missing_packages_are_noticed_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardmill.training.config.export.find_spec", lambda name: None)
    ExportSettings(formats=("litert", "litert-int8")).check_packages("tensorflow")
    with pytest.raises(EnvironmentFault, match="needs the package tf2onnx"):
        ExportSettings(formats=("onnx",)).check_packages("tensorflow")
    with pytest.raises(EnvironmentFault, match="needs the package onnx "):
        ExportSettings(formats=("onnx",)).check_packages("torch")


@pytest.mark.slow
def test_8_bits_cost_a_trained_model_little_accuracy(tmp_path: Path) -> None:
    """Handwritten digits: the model learns to read most of them, so that there is accuracy to lose."""
    import keras

    publish(tmp_path, digits(size=16), name="digits")
    dataset = open_dataset("digits", root=tmp_path)
    keras.utils.set_random_seed(3)
    model = build_model(ModelSpec("small_cnn", num_classes=10, image_size=16))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.003), loss)
    examples = dataset.tf("train", batch_size=32, image_size=16, epochs=4, augment=AugmentSettings(
        random_resized_crop=False, horizontal_flip=False))  # fmt: skip
    model.fit(examples, shuffle=False, verbose=0)
    figures = write_forms(of_classes(model), request(dataset, formats=["litert-int8"]), tmp_path)[
        "litert-int8"
    ]
    assert figures["model_accuracy"] > 0.8
    assert abs(figures["accuracy"] - figures["model_accuracy"]) <= 0.02
    assert figures["agreement"] > 0.95


def test_the_comparison_counts_what_another_model_does(dataset: Dataset, exported: Exported) -> None:
    reader = dataset.reader("test")
    always_second = compare(
        exported, lambda images: np.tile([0.25, 0.75], (len(images), 1)), reader, ClassMeasure()
    )
    assert always_second.score == pytest.approx(6 / 15)
    assert 0 < always_second.max_difference <= 0.75
    labels = reader.table.label
    images = next(iter(dataset.batches("test", batch_size=15, image_size=16))).images
    predicted = np.asarray(exported.model(images)).argmax(axis=1)
    assert always_second.model_score == pytest.approx((predicted == labels).mean())
    assert always_second.agreement == pytest.approx((predicted == 1).mean())
    nothing = compare(exported, lambda images: np.full((len(images), 2), np.nan), reader, ClassMeasure())
    assert np.isnan(nothing.max_difference), "what is no number is not alike"


def test_a_long_comparison_gives_a_sign_of_life_after_each_batch(tmp_path: Path) -> None:
    import keras

    publish(tmp_path / "sets", coloured({"test": {"a": 90, "b": 60}}, size=(8, 8)), name="set")
    prepare(tmp_path / "heartbeat")
    heart, beats = Heart(tmp_path / "heartbeat"), []

    def values(images: Any) -> Any:
        beats.append(read(tmp_path / "heartbeat").at)
        return np.zeros((len(images), 2))

    end = subscribe(heart.hear)
    try:
        model = of_classes(
            keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(2)])
        )
        with heart.during(Work.LONG):
            compare(model, values, open_dataset("set", root=tmp_path / "sets").reader("test"), ClassMeasure())
    finally:
        end()
    beats.append(read(tmp_path / "heartbeat").at)
    assert len(beats) == 4
    assert beats == sorted(set(beats)), "each batch of 64 follows a new sign"


def test_forms_see_images_as_the_model_does(exported: Exported, tmp_path: Path) -> None:
    publish(tmp_path, coloured({"test": {"a": 2, "b": 1}}, size=(12, 40)), name="wide")
    dataset = open_dataset("wide", root=tmp_path)
    seen = []

    def values(images: Any) -> Any:
        seen.append(images)
        return np.asarray(exported.output(images))

    squeezed = replace(exported, given=exported.given.model_copy(update={"fit": "stretch"}))
    compare(squeezed, values, dataset.reader("test"), ClassMeasure())
    for fit, alike in (("stretch", True), ("crop", False)):
        (batch,) = dataset.batches("test", batch_size=3, image_size=16, fit=fit)
        assert np.array_equal(seen[0], batch.images) == alike


def test_a_form_that_cannot_be_made_is_named_and_the_others_are_written(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(*_: object) -> bytes:
        raise RuntimeError("no such operation")

    monkeypatch.setattr("shardmill.training.tensorflow.export.litert.convert", unable)
    written = write_forms(
        of_classes(build_model(ModelSpec("small_cnn", 2, 16))), request(dataset, formats=["litert"]), tmp_path
    )
    assert written == {"litert": {"problem": "RuntimeError: no such operation"}}
    assert list(tmp_path.iterdir()) == []


def test_a_format_comes_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        ExportSettings(formats=("litert", "litert"))
