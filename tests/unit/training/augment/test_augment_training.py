"""Batches that are augmented as a whole, in the pipeline and in the step of training."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill import Dataset, open_dataset
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.training.augment.parameters import draw_batch_parameters, own_share
from shardmill.training.config import AugmentSettings, TrainConfig
from shardmill.training.reading.example_spec import ExampleSpec
from tests.samples.datasets.published import coloured, publish

COUNTS = {"train": {"a": 17, "b": 9, "c": 4}}
AUGMENT = {"randaugment": {"num_ops": 2}, "mixup": 0.4, "cutmix": 1.0}
SETTINGS = AugmentSettings.model_validate(AUGMENT)
CUTMIX = AugmentSettings.model_validate({"cutmix": 1.0})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("datasets")
    publish(root, coloured(COUNTS, size=(40, 50)), name="set")
    return open_dataset("set@1", root=root)


def pipeline_of(dataset: Dataset, settings: AugmentSettings = SETTINGS, seed: int = 3) -> Any:
    from shardmill.training.order import TrainingOrder
    from shardmill.training.tensorflow.data.augmented_batches import WithBatchParameters
    from shardmill.training.tensorflow.data.indexed import IndexedPipeline

    reader = dataset.reader("train")
    order = TrainingOrder(reader.table.label, seed=seed, global_batch_size=8)
    return WithBatchParameters(IndexedPipeline(reader, order, ExampleSpec(image_size=16, augment=settings)))


def joined(batches: list[dict[str, Any]], kind: str, field: str) -> np.ndarray:
    return np.concatenate([batch["parameters"][kind][field] for batch in batches])


@pytest.mark.parametrize("settings", [SETTINGS, CUTMIX], ids=["all", "cutmix alone"])
def test_draws_travel_with_their_rows_however_batches_are_cut(
    dataset: Dataset, settings: AugmentSettings
) -> None:
    pipeline = pipeline_of(dataset, settings)
    steps = pipeline.order.steps_per_epoch
    whole = list(pipeline.dataset(0, 2 * steps).as_numpy_iterator())
    assert len(whole) == 2 * steps == 8
    for number, batch in enumerate(whole):
        plan = pipeline.order.step(*divmod(number, steps))
        assert np.array_equal(batch["ordinals"], plan.ordinals)
        wanted = draw_batch_parameters(settings, 3, plan.epoch, plan.positions, 16)
        assert batch["parameters"].keys() == wanted.keys()
        for kind, arrays in wanted.items():
            assert all(np.array_equal(batch["parameters"][kind][name], arrays[name]) for name in arrays)
    cut = list(pipeline.dataset(0, 2 * steps, batch_size=2).as_numpy_iterator())
    resumed = list(pipeline.dataset(5, 2 * steps).as_numpy_iterator())
    for kind, arrays in whole[0]["parameters"].items():
        for field in arrays:
            assert np.array_equal(joined(cut, kind, field), joined(whole, kind, field))
            assert np.array_equal(joined(resumed, kind, field), joined(whole[5:], kind, field))


def test_a_row_without_a_neighbour_is_refused(dataset: Dataset) -> None:
    with pytest.raises(ConfigError, match="device takes 1 of each batch") as caught:
        pipeline_of(dataset).dataset(0, 4, batch_size=1)
    assert "even number of rows" in str(caught.value.remedy)
    alone = AugmentSettings.model_validate({"randaugment": {"num_ops": 1}})
    assert len(list(pipeline_of(dataset, alone).dataset(0, 1, batch_size=1))) == 8


def test_the_loss_of_a_step_is_against_both_labels(dataset: Dataset) -> None:
    """Against Keras' own cross-entropy of soft, smoothed labels, over the images as they were mixed."""
    import keras

    from shardmill.training.tensorflow.augment_batches import BatchAugment, soft_labels
    from shardmill.training.tensorflow.parts import build_parts
    from shardmill.training.tensorflow.ranks.strategy import make_strategy
    from shardmill.training.tensorflow.step import TrainStep

    config = TrainConfig.model_validate(
        {
            "augment": AUGMENT,
            "model": {"name": "tests.samples.models.linear_model"},
            "data": {"image_size": 16, "global_batch_size": 8},
            "optimizer": {"label_smoothing": 0.1, "name": "sgd", "learning_rate": 1e-30, "weight_decay": 0},
        }
    )
    parts = build_parts(config, make_strategy("one"), dataset.version, 4)
    step, model = TrainStep(config, parts, 8), parts.model
    for batch in pipeline_of(dataset).dataset(2, 4):  # the last one of an epoch is padded
        draws, labels, weights = batch["parameters"], batch["labels"], batch["weights"].numpy()
        logits = model(BatchAugment(config.augment)(batch["images"], draws))
        soft = soft_labels(labels, own_share(draws), 3)
        losses = keras.losses.categorical_crossentropy(soft, logits, from_logits=True, label_smoothing=0.1)
        num_real = int((weights > 0).sum())
        step(batch, 0, num_real)
        sums = parts.totals.take()
        assert sums.loss / num_real == pytest.approx(float((losses.numpy() * weights).sum()), rel=1e-5)
        hits = (soft.numpy().argmax(axis=1) == logits.numpy().argmax(axis=1)) & (weights > 0)
        assert sums.score == hits.sum()
    assert (weights == 0).sum() == 2


def test_a_plain_dataset_has_mixed_images_and_soft_labels(dataset: Dataset) -> None:
    from shardmill.training.tensorflow.augment_batches import BatchAugment, soft_labels

    mixing = AugmentSettings.model_validate({"mixup": 0.4, "cutmix": 1.0})
    options: Any = {"batch_size": 8, "image_size": 16, "seed": 3, "last_batch": "partial"}
    batches = list(dataset.tf("train", augment=mixing, **options))
    assert [images.shape[0] for images, _ in batches] == [8, 8, 8, 6]
    augment = BatchAugment(mixing)
    for number, batch in enumerate(pipeline_of(dataset, mixing).dataset(0, 4)):
        images, labels = batches[number]
        wanted = soft_labels(batch["labels"], own_share(batch["parameters"]), 3).numpy()
        assert np.array_equal(images, augment(batch["images"], batch["parameters"])[: len(images)])
        assert np.allclose(labels, wanted[: len(labels)])
        assert np.allclose(labels.numpy().sum(axis=1), 1.0)


def test_without_mixing_labels_stay_numbers(dataset: Dataset) -> None:
    settings = AugmentSettings.model_validate({"randaugment": {"num_ops": 1}})
    ((images, labels),) = dataset.tf("train", batch_size=2, image_size=16, augment=settings).take(1)
    assert (labels.dtype.name, images.dtype.name) == ("int32", "uint8")


def test_readers_without_tensorflow_refuse_what_they_cannot_do(dataset: Dataset) -> None:
    with pytest.raises(
        UsageError,
        match=r"with \.tf and \.torch only \(augment\.randaugment and augment\.mixup and augment\.cutmix\)",
    ):
        dataset.batches("train", batch_size=8, augment=SETTINGS)
    assert list(dataset.batches("train", batch_size=8, augment=SETTINGS, training=False))


def test_the_documented_example_runs(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[4] / "docs" / "augmentation.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    publish(tmp_path / "datasets", coloured({"train": {"cat": 40, "dog": 40}}), name="photos")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(block, names)
    images, labels = next(iter(names["train"]))
    assert images.shape == (64, 96, 96, 3)
    assert np.allclose(labels.numpy().sum(axis=1), 1.0)


def test_the_documented_settings_are_settings() -> None:
    page = Path(__file__).parents[4] / "docs" / "augmentation.md"
    (block,) = re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    settings = TrainConfig.model_validate(tomllib.loads(block)["train"]).augment
    assert settings.of_batches
    assert settings.color_jitter.is_on
