"""Other forms of the model predict what the model predicts, or there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.samples.published import coloured, publish
from training.config import ExportSettings
from training.dataset import Dataset, open_dataset
from training.export.forms import FormsRequest, compare, write_forms
from training.models import ModelSpec, build_model


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("datasets")
    publish(root, coloured({"train": {"a": 20, "b": 20}, "test": {"a": 9, "b": 6}}), name="set")
    return open_dataset("set", root=root)


@pytest.fixture(scope="module")
def model() -> Any:
    """A model whose probabilities differ from image to image."""
    import keras

    keras.utils.set_random_seed(3)
    return build_model(ModelSpec("small_cnn", num_classes=2, image_size=16))


def request(dataset: Dataset, **settings: Any) -> FormsRequest:
    return FormsRequest(
        ExportSettings.model_validate(settings), dataset.reader("train"), dataset.reader("test")
    )


def test_litert_predicts_as_the_model_does_and_int8_is_smaller(
    dataset: Dataset, model: Any, tmp_path: Path
) -> None:
    asked = request(dataset, formats=["litert", "litert-int8"], max_accuracy_loss=1.0)
    written = write_forms(model, asked, tmp_path)
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


def test_the_comparison_counts_what_another_model_does(dataset: Dataset, model: Any) -> None:
    reader = dataset.reader("test")
    always_second = compare(model, lambda images: np.tile([0.25, 0.75], (len(images), 1)), reader)
    assert always_second.accuracy == pytest.approx(6 / 15)
    assert 0 < always_second.max_difference <= 0.75
    labels = reader.table.label
    images = next(iter(dataset.batches("test", batch_size=15, image_size=16))).images
    predicted = np.asarray(model(images)).argmax(axis=1)
    assert always_second.model_accuracy == pytest.approx((predicted == labels).mean())
    assert always_second.agreement == pytest.approx((predicted == 1).mean())


def test_a_form_that_cannot_be_made_is_named_and_the_others_are_written(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(*_: object) -> bytes:
        raise RuntimeError("no such operation")

    monkeypatch.setattr("training.export.litert.convert", unable)
    written = write_forms(
        build_model(ModelSpec("small_cnn", 2, 16)), request(dataset, formats=["litert"]), tmp_path
    )
    assert written == {"litert": {"problem": "RuntimeError: no such operation"}}
    assert list(tmp_path.iterdir()) == []


def test_a_format_comes_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        ExportSettings(formats=("litert", "litert"))
