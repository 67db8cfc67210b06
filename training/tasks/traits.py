"""Facts about the task of each kind of labels, for all frameworks: its figures, and the settings that apply.

Imports no framework. ``shardmill.training.tasks`` says how to add a task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.format.known_features import BOXES, WORDS, LabelKind
from shardmill.training.models.spec import ModelOutput

if TYPE_CHECKING:
    from shardmill.training.config import TrainConfig
    from shardmill.training.config.data import DataSettings

Setting = Literal["classes", "repeats", "mixing", "smoothing", "forms"]
# A kind of labels that is learned, or objects in images: their labels of kind multi are only their classes.
Learned = LabelKind | Literal["objects"]

_OBJECTS_IMAGE_SIZE = 256  # pixels; what classifiers are made for is small for objects


@dataclass(frozen=True, slots=True)
class TaskTraits:
    """Facts about a task.

    Attributes:
        name: its name, as in the result of a run and in files of predictions.
        figures: the figures of the validation split by which the best model may be chosen; the first one is
            the default.
        output: what the model gives for an image.
        finds_places: the whole image is seen in evaluation, and augmentation must move what is annotated.
        settings: the groups of settings that have a meaning for it. "classes": what counts or draws one class
            an example (class balance, class weights, folds and label errors); "repeats": repeat factors,
            which know several labels too; "mixing": MixUp and CutMix; "smoothing": label smoothing; "forms":
            forms of the exported model besides the SavedModel.
    """

    name: str
    figures: tuple[str, ...]
    settings: frozenset[Setting]
    output: ModelOutput = "classes"
    finds_places: bool = False


TRAITS: Final[Mapping[Learned, TaskTraits]] = {
    "class": TaskTraits(
        "single-label",
        ("accuracy", "balanced_accuracy", "macro_f1", "loss"),
        frozenset({"classes", "repeats", "mixing", "smoothing", "forms"}),
    ),
    "multi": TaskTraits(
        "multi-label",
        ("mean_average_precision", "macro_f1", "micro_f1", "exact_match", "loss"),
        frozenset({"repeats", "mixing", "smoothing", "forms"}),
    ),
    "targets": TaskTraits(
        "regression",
        ("r2", "absolute_error", "root_mean_square_error", "loss"),
        frozenset({"mixing", "forms"}),
    ),
    "objects": TaskTraits(
        "detection",
        ("average_precision", "average_precision_50", "average_recall", "loss"),
        frozenset({"repeats"}),
        "objects",
        finds_places=True,
    ),
    "mask": TaskTraits(
        "segmentation",
        ("mean_iou", "pixel_accuracy", "loss"),
        frozenset({"forms"}),
        "pixels",
        finds_places=True,
    ),
}
_WORDS: Final[dict[str, str]] = {"objects": "objects in images", **dict(WORDS.items())}


def learned(version: DatasetVersion) -> Learned:
    """Return the kind of labels that models of a dataset version learn."""
    has_boxes = any(feature.name == BOXES for feature in version.manifest.extra_features)
    return "objects" if has_boxes else version.manifest.label_kind


def traits_of(version: DatasetVersion) -> TaskTraits:
    """Return the facts about the task of a dataset version.

    Raises:
        UsageError: its records have no labels, or labels that no task learns.
    """
    kind = learned(version)
    if kind not in TRAITS:
        why = "there is nothing that a model could learn from it" if kind == "none" else "no task learns that"
        raise UsageError(
            f"{version.ref} has {_WORDS[kind]}: {why}",
            "prepare it with labels (docs/labels.md), or read it with open_dataset in a loop of your own",
        )
    return TRAITS[kind]


def settings_for(config: TrainConfig, version: DatasetVersion) -> TrainConfig:
    """Fill in the settings that the labels decide, and refuse those without a meaning.

    The labels decide ``run.best_metric``, where places are found ``data.fit``, and for objects
    ``data.image_size``.

    Args:
        config: the configuration of a run.
        version: the dataset version.

    Raises:
        UsageError: there is nothing to learn. ConfigError: a setting has no meaning for the task.
    """
    traits = traits_of(version)
    for group, key, value, plain in _special(config):
        if group not in traits.settings and value != plain:
            raise ConfigError(
                f"{key} = {value!r} has no meaning for {traits.name}: {version.ref} has "
                f"{_WORDS[learned(version)]}",
                f"leave it out: {key} = {plain!r}" + _instead(key, traits),
            )
    if traits.finds_places:
        if config.run.framework != "tensorflow":
            raise ConfigError(
                f"{version.ref} has {_WORDS[learned(version)]}, which are learned with TensorFlow only",
                "leave run.framework out, or read them with open_dataset(...).torch in a loop of your own",
            )
        config.augment.check_objects_follow()
        config = config.model_copy(update={"data": _seen(config.data, traits)})
    metric = config.run.best_metric
    if metric == "auto":
        run = config.run.model_copy(update={"best_metric": traits.figures[0]})
        return config.model_copy(update={"run": run})
    if metric not in traits.figures:
        raise ConfigError(
            f"run.best_metric = {metric!r} is no figure of {traits.name}, which {version.ref} is for",
            f"choose 'auto', or one of: {', '.join(traits.figures)}",
        )
    return config


def _seen(data: DataSettings, traits: TaskTraits) -> DataSettings:
    """Return the settings with the part and the size of an image in which places are found."""
    if traits.output != "objects":
        return data.model_copy(update={"fit": data.fit or "stretch"})
    if data.fit == "crop":
        raise ConfigError(
            "data.fit = 'crop' would cut objects off", "leave it out: objects need data.fit = 'stretch'"
        )
    size = data.image_size or _OBJECTS_IMAGE_SIZE
    return data.model_copy(update={"fit": "stretch", "image_size": size})


def _instead(key: str, traits: TaskTraits) -> str:
    """Return another remedy for the task as a clause of a sentence; empty if there is none."""
    if key == "data.balance" and "repeats" in traits.settings:
        return ", or draw images with rare labels more often: data.balance = 'repeat-factor'"
    return ""


def _special(config: TrainConfig) -> Iterator[tuple[Setting, str, object, object]]:
    """Yield the settings that not every task has a meaning for: group, key, value and neutral value."""
    data, augment = config.data, config.augment
    repeats: Setting = "repeats" if data.balance == "repeat-factor" else "classes"
    yield repeats, "data.balance", data.balance, "natural"
    yield "classes", "data.class_weights", data.class_weights, "none"
    yield "classes", "data.left_out_fold", data.left_out_fold, None
    yield "mixing", "augment.mixup", augment.mixup, 0.0
    yield "mixing", "augment.cutmix", augment.cutmix, 0.0
    yield "smoothing", "optimizer.label_smoothing", config.optimizer.label_smoothing, 0.0
    yield "forms", "export.formats", config.export.formats, ()
