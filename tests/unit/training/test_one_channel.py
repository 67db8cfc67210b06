"""Images of one channel: the same luma from every reader, and models and augmentation that take it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shardmill import Dataset, open_dataset
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.training.augment.parameters import draw_batch_parameters
from shardmill.training.config import AugmentSettings
from shardmill.training.models import ModelSpec, PixelStatistics
from shardmill.training.models.spec import pixels_of
from shardmill.training.reading.decode import luma
from shardmill.training.tensorflow.models import build_model
from tests.samples.datasets.published import coloured, publish

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)


def test_the_luma_is_that_of_pillow_and_of_the_graph() -> None:
    from shardmill.training.tensorflow.data.preprocess import to_grey

    every_grey = np.repeat(np.arange(256, dtype=np.uint8)[:, None, None], 3, axis=2)
    assert np.array_equal(luma(every_grey), every_grey[..., :1])
    assert np.array_equal(luma(PIXELS)[..., 0], np.asarray(Image.fromarray(PIXELS).convert("L")))
    assert np.array_equal(luma(PIXELS), to_grey(PIXELS).numpy())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("datasets")
    publish(root, coloured({"train": {"a": 9, "b": 5}, "test": {"a": 3}}, size=(24, 30)), name="set")
    return root


@pytest.fixture(scope="module")
def dataset(root: Path) -> Dataset:
    return open_dataset("set", root=root)


def test_numpy_batches_are_the_luma_of_the_coloured_ones(dataset: Dataset) -> None:
    options = {"batch_size": 4, "image_size": 12, "seed": 5}
    coloured_batches = list(dataset.batches("train", **options))
    grey_batches = list(dataset.batches("train", **options, image_channels=1))
    for grey, colour in zip(grey_batches, coloured_batches, strict=True):
        assert grey.images.shape == (4, 12, 12, 1)
        assert np.array_equal(grey.images, luma(colour.images))


@pytest.mark.parametrize(
    "reading",
    [{}, {"decoder": "tensorflow"}, {"mode": "streaming"}],
    ids=["turbo", "tensorflow", "streaming"],
)
def test_every_pipeline_of_tensorflow_gives_one_channel(root: Path, reading: dict[str, str]) -> None:
    opened = open_dataset("set", root=root, **reading)
    augment = AugmentSettings(vertical_flip=True, quarter_turns=True)
    options = {"batch_size": 4, "image_size": 12, "seed": 5, "augment": augment}
    grey = list(opened.tf("train", **options, image_channels=1).as_numpy_iterator())
    colour = list(opened.tf("train", **options).as_numpy_iterator())
    assert len(grey) == len(colour) == 3
    for (images, labels), (wanted, same_labels) in zip(grey, colour, strict=True):
        assert np.array_equal(images, luma(wanted))
        assert np.array_equal(labels, same_labels)


def test_evaluation_gives_one_channel(dataset: Dataset) -> None:
    [(images, _)] = dataset.tf("test", batch_size=4, image_size=12, image_channels=1).as_numpy_iterator()
    assert images.shape == (3, 12, 12, 1)


def test_other_numbers_of_channels_are_refused(dataset: Dataset) -> None:
    with pytest.raises(ConfigError, match="image_channels"):
        dataset.batches("train", batch_size=4, image_size=12, image_channels=2)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="whole images have three channels"):
        dataset.batches("train", batch_size=4, image_size=None, image_channels=1)


@pytest.mark.parametrize("name", ["small_cnn", "compact_resnet", "MobileNetV2"])
def test_models_take_one_channel(name: str) -> None:
    model = build_model(ModelSpec(name, num_classes=3, image_size=32, image_channels=1))
    assert (model.input_shape, model.output_shape) == ((None, 32, 32, 1), (None, 3))


def test_a_model_for_other_channels_is_refused() -> None:
    build_model(
        ModelSpec("tests.samples.models.tutorial_cnn", num_classes=3, image_size=28, image_channels=1)
    )
    with pytest.raises(ConfigError, match="images of 1 channel; data"):
        build_model(ModelSpec("tests.samples.models.tutorial_cnn", num_classes=3, image_size=28))


@pytest.mark.parametrize(
    ("mean", "std", "expected"),
    [
        ([50.0], [20.0], PixelStatistics((50.0,), (20.0,))),
        ([100.0, 100.0, 100.0], [30.0, 30.0, 30.0], PixelStatistics((100.0,), (30.0,))),
        ([100.0, 0.0, 0.0], [0.0, 10.0, 0.0], PixelStatistics((29.9,), (5.87,))),
        ([1.0, 2.0], [1.0, 2.0], None),
    ],
)
def test_statistics_for_one_channel(
    mean: list[float], std: list[float], expected: PixelStatistics | None, tmp_path: Path
) -> None:
    from shardmill.infra.format.contract import ChannelStatistics, SplitStatistics

    manifest = publish(tmp_path, coloured({"train": {"a": 2}})).manifest
    pixels = ChannelStatistics(num_pixels=9, mean=mean, std=std)
    manifest = manifest.model_copy(update={"statistics": {"train": SplitStatistics(pixels=pixels)}})
    found = pixels_of(manifest, 1)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert (*found.mean, *found.std) == pytest.approx((*expected.mean, *expected.std))


def test_batches_of_one_channel_are_augmented_as_grey_colour_is() -> None:
    import tensorflow as tf

    from shardmill.training.tensorflow.augment_batches import BatchAugment

    settings = AugmentSettings.model_validate({"randaugment": {"num_ops": 2}, "cutmix": 1.0})
    positions = np.arange(4, dtype=np.int64)
    draws = tf.nest.map_structure(tf.constant, draw_batch_parameters(settings, 0, 0, positions, 16))
    grey = np.random.default_rng(1).integers(0, 256, (4, 16, 16, 1), dtype=np.uint8)
    augment = BatchAugment(settings)
    found = augment(tf.constant(grey), draws).numpy()
    wanted = augment(tf.constant(np.repeat(grey, 3, axis=-1)), draws).numpy()
    assert found.shape == grey.shape
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1, "rounding of grey to colour"
