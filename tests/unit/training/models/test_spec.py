"""Pixels are normalised by the statistics of the dataset, inside the model and inside what is exported."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.contract import ChannelStatistics, SplitStatistics
from shardmill.infra.preparation import Preparation
from shardmill.training.config import TrainConfig
from shardmill.training.export.model_input import ModelInput
from shardmill.training.models import ModelSpec, PixelStatistics
from shardmill.training.models.spec import pixels_of
from shardmill.training.run.framework import model_spec
from shardmill.training.tasks.single_label import SingleLabel
from shardmill.training.tensorflow.export.forms import Exported
from shardmill.training.tensorflow.export.saved_model import export
from shardmill.training.tensorflow.models import build_model
from shardmill.training.tensorflow.models.normalization import normalized
from shardmill.training.tensorflow.operations import OPERATIONS
from tests.samples.datasets.published import coloured, publish
from tests.samples.training.rounding import near

PIXELS = PixelStatistics((100.0, 50.0, 200.0), (20.0, 0.0, 50.0))


def outputs(images: np.ndarray, pixels: PixelStatistics | None) -> np.ndarray:
    spec = ModelSpec("small_cnn", num_classes=2, image_size=8, pixels=pixels)
    image = keras.Input((8, 8, 3))
    return np.asarray(keras.Model(image, normalized(image, spec))(images))


def test_pixels_have_mean_0_and_deviation_1_and_a_flat_channel_stays_small() -> None:
    images = np.broadcast_to(np.array([120.0, 51.0, 150.0], np.float32), (1, 8, 8, 3))
    assert outputs(images, PIXELS)[0, 3, 3] == pytest.approx([1.0, 1.0, -1.0], abs=1e-5)


def test_without_statistics_pixels_run_from_minus_1_to_1() -> None:
    images = np.broadcast_to(np.array([0.0, 127.5, 255.0], np.float32), (1, 8, 8, 3))
    assert outputs(images, None)[0, 0, 0] == pytest.approx([-1.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("mean", "std", "expected"),
    [
        ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], PixelStatistics((1, 2, 3), (4, 5, 6))),
        ([7.0], [8.0], PixelStatistics((7, 7, 7), (8, 8, 8))),
        ([1.0, 2.0], [1.0, 2.0], None),
    ],
)
def test_statistics_of_the_manifest(
    mean: list[float], std: list[float], expected: PixelStatistics | None, tmp_path: Path
) -> None:
    manifest = publish(tmp_path, coloured({"train": {"a": 2}})).manifest
    assert pixels_of(manifest.model_copy(update={"statistics": {}})) is None
    assert pixels_of(manifest.model_copy(update={"statistics": {"train": SplitStatistics()}})) is None
    pixels = ChannelStatistics(num_pixels=9, mean=mean, std=std)
    statistics = {"train": SplitStatistics(pixels=pixels), "test": SplitStatistics()}
    assert pixels_of(manifest.model_copy(update={"statistics": statistics})) == expected


def test_a_run_normalises_by_its_data_set_unless_told_otherwise(tmp_path: Path) -> None:
    version = publish(tmp_path, coloured({"train": {"a": 2}}))
    pixels = ChannelStatistics(num_pixels=9, mean=[1.0, 2.0, 3.0], std=[4.0, 5.0, 6.0])
    statistics = {"train": SplitStatistics(pixels=pixels)}
    manifest = version.manifest.model_copy(update={"statistics": statistics})
    version = DatasetVersion(version.storage, manifest)
    assert model_spec(TrainConfig(), version, 1, 1).pixels == PixelStatistics((1, 2, 3), (4, 5, 6))
    fixed = TrainConfig.model_validate({"data": {"normalization": "fixed"}})
    assert model_spec(fixed, version, 1, 1).pixels is None


def test_the_exported_model_normalises_likewise(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    model, fixed = (
        build_model(ModelSpec("small_cnn", num_classes=3, image_size=64, seed=1, pixels=pixels))
        for pixels in (PIXELS, None)
    )
    given = ModelInput(preparation=Preparation(encoding="png"), image_size=64)
    export(Exported(model, SingleLabel(OPERATIONS, 3), ["a", "b", "c"], given), tmp_path / "export")
    served = tf.saved_model.load(str(tmp_path / "export")).signatures["pixels"]
    answer = served(images=tf.constant(image[np.newaxis]))["probabilities"].numpy()[0]
    here, other = (
        tf.nn.softmax(one(image[np.newaxis].astype(np.float32), training=False)).numpy()[0]
        for one in (model, fixed)
    )
    assert answer == near(here)
    assert np.abs(answer - other).max() > 1e-4
