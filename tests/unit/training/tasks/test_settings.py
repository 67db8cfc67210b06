"""The task that follows from the labels of a dataset version, and the settings that fit it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError, DataError, UsageError
from shardmill.infra.format.known_features import OBJECT_FEATURES, MaskFormat, target_names, targets_feature
from shardmill.infra.settings import validate
from shardmill.training.config import TrainConfig
from shardmill.training.run.files.identity import run_name
from shardmill.training.tasks.registry import kind_of
from shardmill.training.tasks.regression import target_scale
from shardmill.training.tasks.settings import settings_for
from tests.samples.datasets.published import Picture, coloured, patterned, publish, publish_patterned

COUNTS = {"train": 6, "validation": 2}


@dataclass(frozen=True)
class Versions:
    """A dataset version of each kind of labels, by kind."""

    by_kind: dict[str, DatasetVersion]


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Versions:
    root = tmp_path_factory.mktemp("sets")
    classes = coloured({"train": {"a": 3, "b": 3}}, size=(8, 8))
    objects = publish_patterned(root, COUNTS, several=True, name="objects")
    objects.manifest.extra_features.extend(OBJECT_FEATURES)
    masks = publish_patterned(root, COUNTS, several=True, name="masks")
    of_masks = masks.manifest.model_copy(update={"label_kind": "mask", "mask": MaskFormat()})
    return Versions(
        {
            "class": publish(root, classes, name="class"),
            "multi": publish_patterned(root, COUNTS, several=True, name="multi"),
            "targets": publish_patterned(root, COUNTS, several=False, name="targets"),
            "objects": objects,
            "mask": DatasetVersion(masks.storage, of_masks),
        }
    )


def config(**tables: Any) -> TrainConfig:
    return validate(TrainConfig, tables, where="the test")


@pytest.mark.parametrize(
    ("kind", "name", "num_outputs"),
    [("class", "SingleLabel", 2), ("multi", "MultiLabel", 3), ("targets", "Regression", 2)],
)
def test_each_kind_of_labels_has_a_task(versions: Versions, kind: str, name: str, num_outputs: int) -> None:
    pytest.importorskip("tensorflow")
    from shardmill.training.tasks.task import LabelSpec
    from shardmill.training.tensorflow.operations import OPERATIONS

    version = versions.by_kind[kind]
    settings = config(optimizer={"label_smoothing": 0.1 if kind != "targets" else 0.0})
    task = kind_of(version).task(version, settings, OPERATIONS)
    assert (type(task).__name__, task.num_outputs) == (name, num_outputs)
    assert getattr(task, "label_smoothing", 0.1) == 0.1
    assert task.kind.name == kind_of(version).name
    assert isinstance(task.labels, LabelSpec)
    assert task.labels.shape == (() if kind == "class" else (num_outputs,))
    served = task.served(np.zeros((4, num_outputs), np.float32))
    assert {len(part) for part in served.values()} == {4}


@pytest.mark.parametrize("kind", ["class", "multi", "targets", "objects", "mask"])
def test_every_figure_that_may_choose_the_best_is_measured(versions: Versions, kind: str) -> None:
    pytest.importorskip("tensorflow")
    from shardmill.training.tensorflow.operations import OPERATIONS

    version = versions.by_kind[kind]
    task = kind_of(version).task(version, config(), OPERATIONS)
    assert set(task.kind.figures) <= task.tally().evaluation().figures().keys()


@pytest.mark.parametrize(
    ("kind", "asked", "found"),
    [
        ("class", "auto", "accuracy"),
        ("class", "macro_f1", "macro_f1"),
        ("multi", "auto", "mean_average_precision"),
        ("targets", "auto", "r2"),
        ("targets", "absolute_error", "absolute_error"),
        ("objects", "auto", "average_precision"),
        ("mask", "auto", "mean_iou"),
    ],
)
def test_the_best_metric(versions: Versions, kind: str, asked: str, found: str) -> None:
    settled = settings_for(config(run={"best_metric": asked}), versions.by_kind[kind])
    assert settled.run.best_metric == found
    assert settings_for(settled, versions.by_kind[kind]) == settled


@pytest.mark.parametrize(
    ("kind", "asked", "fit", "image_size"),
    [
        ("class", {}, None, None),
        ("objects", {}, "stretch", 256),
        ("mask", {}, "stretch", None),
        ("mask", {"fit": "crop", "image_size": 96}, "crop", 96),
    ],
)
def test_the_part_and_size_of_images_that_are_seen(
    versions: Versions, kind: str, asked: dict[str, Any], fit: str | None, image_size: int | None
) -> None:
    data = settings_for(config(data=asked), versions.by_kind[kind]).data
    assert (data.fit, data.image_size) == (fit, image_size)


@pytest.mark.parametrize(
    ("kind", "tables", "told"),
    [
        ("class", {"run": {"best_metric": "r2"}}, "run.best_metric = 'r2' is no figure of single-label"),
        ("multi", {"run": {"best_metric": "accuracy"}}, "no figure of multi-label"),
        (
            "multi",
            {"data": {"balance": "uniform"}},
            "data.balance = 'uniform' has no meaning for multi-label",
        ),
        ("multi", {"data": {"class_weights": "balanced"}}, "data.class_weights"),
        ("mask", {"data": {"folds": 5, "left_out_fold": 1}}, "data.left_out_fold = 1"),
        ("targets", {"data": {"balance": "sqrt"}}, "has numbers"),
        ("mask", {"data": {"balance": "repeat-factor"}}, "data.balance = 'repeat-factor' has no meaning"),
        (
            "targets",
            {"optimizer": {"label_smoothing": 0.1}},
            "optimizer.label_smoothing = 0.1 has no meaning",
        ),
        ("objects", {"export": {"formats": ["onnx"]}}, r"export\.formats = .* has no meaning for detection"),
    ],
)
def test_settings_without_a_meaning_are_refused(
    versions: Versions, kind: str, tables: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        settings_for(config(**tables), versions.by_kind[kind])


@pytest.mark.parametrize("kind", ["class", "multi", "objects"])
def test_repeat_factors_fit_classes_several_labels_and_objects(versions: Versions, kind: str) -> None:
    asked = config(data={"balance": "repeat-factor"})
    assert settings_for(asked, versions.by_kind[kind]).data.balance == "repeat-factor"


def test_a_refused_rule_names_the_one_for_several_labels(versions: Versions) -> None:
    with pytest.raises(ConfigError, match="balance = 'sqrt' has no meaning for multi-label") as error:
        settings_for(config(data={"balance": "sqrt"}), versions.by_kind["multi"])
    assert "data.balance = 'repeat-factor'" in str(error.value.remedy)


def test_mixing_fits_every_task_that_finds_no_places(versions: Versions) -> None:
    for kind in ("class", "multi", "targets"):
        version = versions.by_kind[kind]
        assert settings_for(config(augment={"mixup": 0.2, "cutmix": 1.0}), version).augment.mixes


def test_mixing_does_not_fit_objects(versions: Versions) -> None:
    with pytest.raises(ConfigError, match=r"augment\.mixup = 0\.2 has no meaning for detection"):
        settings_for(config(augment={"mixup": 0.2}), versions.by_kind["objects"])


def test_nothing_can_be_learned_without_labels(versions: Versions) -> None:
    version = versions.by_kind["multi"]
    manifest = version.manifest.model_copy(update={"label_kind": "none"})
    without = DatasetVersion(version.storage, manifest)
    with pytest.raises(UsageError, match="has no labels: there is nothing that a model could learn") as error:
        kind_of(without)
    assert "prepare it with labels" in str(error.value.remedy)


def test_the_name_of_a_run_depends_on_the_metric_that_is_used(versions: Versions) -> None:
    version = versions.by_kind["class"]
    plain = run_name(config(), version)
    assert run_name(config(run={"best_metric": "accuracy"}), version) == plain
    assert run_name(config(run={"best_metric": "macro_f1"}), version) != plain


def test_the_scale_of_targets_is_that_of_the_train_split(versions: Versions) -> None:
    values = np.array([one.values for one in patterned("train", 6, several=False)])
    mean, std = target_scale(versions.by_kind["targets"])
    assert mean == pytest.approx(values.mean(axis=0), rel=1e-6)
    assert std == pytest.approx(values.std(axis=0), rel=1e-5)


@pytest.mark.parametrize("value", [0.0, 7.3, 1e6])
def test_a_target_that_never_changes_is_refused(tmp_path: Path, value: float) -> None:
    pictures = [
        Picture("train", "", one.pixels, (value, float(number)))
        for number, one in enumerate(patterned("train", 4, several=False))
    ]
    version = publish(tmp_path, pictures, classes=[], feature=targets_feature(2, "age, x"), name="flat")
    with pytest.raises(DataError, match=r"target 'age' of flat@1 is .* in all train records"):
        target_scale(version)


@pytest.mark.parametrize(
    ("count", "column", "names"),
    [
        (2, "age, weight", ["age", "weight"]),
        (1, "age", ["age"]),
        (2, "a, b, c", ["target 1", "target 2"]),
        (2, "a, a", ["target 1", "target 2"]),
        (2, None, ["target 1", "target 2"]),
    ],
)
def test_names_of_targets(count: int, column: str | None, names: list[str]) -> None:
    assert target_names(targets_feature(count, column)) == names


@pytest.mark.parametrize("kind", ["class", "multi", "objects"])
def test_records_without_any_class_give_nothing_to_learn(versions: Versions, kind: str) -> None:
    version = versions.by_kind[kind]
    without = DatasetVersion(version.storage, version.manifest.model_copy(update={"classes": []}))
    with pytest.raises(UsageError, match="has a class: there is nothing to learn"):
        settings_for(config(), without)
