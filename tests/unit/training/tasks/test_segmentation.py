"""Segmentation: losses and figures without the pixels of no class, and a U-Net that learns shapes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from PIL import Image

from shardmill import Dataset, open_dataset
from shardmill.infra.errors import ConfigError
from shardmill.infra.settings import validate
from shardmill.training.config import TrainConfig
from shardmill.training.metrics.segmentation import SegmentationTally
from shardmill.training.models import ModelSpec
from shardmill.training.tasks.segmentation import Segmentation
from shardmill.training.tasks.settings import settings_for
from shardmill.training.tensorflow.models import build_model
from shardmill.training.tensorflow.operations import OPERATIONS
from shardmill.training.tensorflow.parts import build_parts
from shardmill.training.tensorflow.ranks.strategy import make_strategy
from tests.samples.images.masks import CLASSES, config, make_masked
from tests.samples.preparing.prepared import run

TASK = Segmentation(OPERATIONS, num_outputs=2, image_size=2, ignore=255)
LABELS = np.array([[[0, 1], [255, 1]], [[255, 255], [255, 255]]], np.uint8)


def logits(classes: np.ndarray, sure: float = 4.0) -> Any:
    """float32 [b, S, S, 2], in favour of the classes."""
    return tf.constant(np.eye(2, dtype=np.float32)[classes] * sure)


def test_pixels_of_no_class_do_not_count() -> None:
    predicted = np.array([[[0, 1], [0, 0]], [[0, 0], [0, 0]]])
    outputs = logits(predicted)
    right, wrong = np.log1p(np.exp(-4.0)), np.log1p(np.exp(4.0))
    np.testing.assert_allclose(TASK.losses(outputs, LABELS), [(2 * right + wrong) / 3, 0.0], rtol=1e-5)
    np.testing.assert_allclose(TASK.scores(outputs, LABELS), [2 / 3, 1.0], rtol=1e-6)
    assert TASK.predictions(outputs)["predicted"].numpy().tolist() == predicted.tolist()
    assert TASK.served(outputs)["probabilities"].shape == (2, 2, 2, 2)


def test_figures_count_all_pixels_together() -> None:
    tally = SegmentationTally(3)
    labels = np.array([[[0, 0], [1, 255]]], np.uint8)
    for number in range(2):
        predicted = np.array([[[0, number], [1, 2]]], np.uint8)
        tally.add(labels, {"predicted": predicted, "losses": np.array([1.0 + number], np.float32)})
    evaluation = tally.evaluation()
    figures = evaluation.figures()
    # Class 0: 3 hits of 4 pixels; class 1: 2 hits, 3 predicted, 2 there; class 2 only where nothing counts.
    assert figures == pytest.approx({"loss": 1.5, "mean_iou": (3 / 4 + 2 / 3) / 2, "pixel_accuracy": 5 / 6})
    assert evaluation.to_result(["a", "b", "c"])["per_class"]["c"] == {
        "iou": 0.0, "support": 0, "predicted_pixels": 0,
    }  # fmt: skip
    assert SegmentationTally(3).evaluation().figures()["mean_iou"] == 0.0


def test_predicted_masks_are_stored_as_png() -> None:
    kind = TASK.kind
    predicted = np.array([[[0, 1], [0, 0]], [[0, 0], [0, 0]]], np.uint8)
    rows = {"predicted": predicted, "losses": np.array([0.5, 0.0], np.float32)}
    label, stored, accuracy = kind.arrays([], LABELS, rows)
    assert np.asarray(Image.open(io.BytesIO(stored[0].as_py()))).tolist() == predicted[0].tolist()
    assert accuracy.to_pylist() == [pytest.approx(2 / 3), None]
    table = pa.table({"label": label, "predicted": stored, "loss": rows["losses"]})
    labels, again = kind.read([], table)
    assert labels.tolist() == LABELS.tolist()
    assert again["predicted"].tolist() == predicted.tolist()
    assert kind.wrong(labels, again).tolist() == [True, False]
    assert kind.label_words(["a", "b"], labels, 0) == "b 67%, a 33%"
    assert kind.predicted_words(["a", "b"], again, 0) == "a 75%, b 25%"


def test_other_models_are_refused() -> None:
    with pytest.raises(ConfigError, match="small_cnn returned a model of output shape"):
        build_model(ModelSpec("small_cnn", num_classes=3, image_size=32, output="pixels"))
    with pytest.raises(ConfigError, match="gives a class to each image"):
        build_model(ModelSpec("ResNet50", num_classes=3, image_size=32, output="pixels"))


def test_sides_that_do_not_halve_three_times_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.image_size = 100: small_unet") as refused:
        build_model(ModelSpec("small_unet", 3, 100, output="pixels"))
    assert "a multiple of 8, such as 104" in str(refused.value.remedy)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    made = tmp_path_factory.mktemp("masked")
    splits = {"train": 0.8, "validation": 0.2, "test": 0.0}
    run(make_masked(made / "photos", 60), made / "root", **config(image={"size": 64}, splits=splits))
    return open_dataset("d", root=made / "root")


def trained(dataset: Dataset, epochs: int) -> tuple[list[float], dict[str, float]]:
    """The loss of each epoch, and the figures of the validation split."""
    keras.utils.set_random_seed(1)
    task = Segmentation(OPERATIONS, len(CLASSES), 64, 255)
    model = build_model(ModelSpec("small_unet", task.num_outputs, 64, output="pixels"))
    optimizer = keras.optimizers.Adam(3e-3)

    @tf.function
    def step(images: Any, masks: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(task.training_losses(model(images, training=True), masks))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    losses = []
    for epoch in range(epochs):
        batches = dataset.tf("train", epoch=epoch, batch_size=8, image_size=64, last_batch="drop")
        losses.append(float(np.mean([step(*batch) for batch in batches])))
    tally = task.tally()
    for images, masks in dataset.tf("validation", training=False, batch_size=4, image_size=64):
        rows = task.evaluated(model(images, training=False), masks)
        tally.add(masks.numpy(), {name: value.numpy() for name, value in rows.items()})
    return losses, tally.evaluation().figures()


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of Keras
def test_a_unet_starts_with_the_weights_of_another(dataset: Dataset, tmp_path: Path) -> None:
    path = str(tmp_path / "earlier.weights.h5")
    earlier = build_model(ModelSpec("small_unet", len(CLASSES), 32, seed=7, output="pixels"))
    earlier.save_weights(path)
    tables = {"model": {"name": "small_unet", "weights": path}, "data": {"image_size": 32}}
    settings = settings_for(validate(TrainConfig, tables, where="the test"), dataset.version)
    model = build_parts(settings, make_strategy("one"), dataset.version, 3).model
    for mine, theirs in zip(model.get_weights(), earlier.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_the_loss_of_a_unet_falls(dataset: Dataset) -> None:
    losses, figures = trained(dataset, 2)
    assert losses[1] < 0.8 * losses[0]
    assert 0.0 < figures["mean_iou"] <= 1.0


@pytest.mark.slow
def test_a_unet_learns_shapes(dataset: Dataset) -> None:
    losses, figures = trained(dataset, 12)
    assert losses[-1] < 0.15
    assert figures["mean_iou"] > 0.85
    assert figures["pixel_accuracy"] > 0.97
