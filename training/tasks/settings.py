"""The settings of a run that its labels decide, and those that have no meaning for them."""

from __future__ import annotations

from collections.abc import Iterator

from shardmill.infra.dataset.joined import JoinedVersion
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.dataset.views.references import MISSING_CLASSES
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.training.config import TrainConfig
from shardmill.training.config.data import DataSettings, OfObjects
from shardmill.training.models.spec import samples_read
from shardmill.training.order.from_settings import check_shares
from shardmill.training.tasks.kind import Setting, TaskKind
from shardmill.training.tasks.registry import LABEL_WORDS, kind_of, learned

_OF_CLASSES = ("class", "multi", "objects", "oriented")
_OBJECTS_IMAGE_SIZE = 256  # pixels; what classifiers are made for is small for objects


def settings_for(config: TrainConfig, version: DatasetVersion) -> TrainConfig:
    """Fill in the settings that the labels decide, and refuse those without a meaning.

    The labels decide ``run.best_metric``, where places are found ``data.fit``, and for objects
    ``data.image_size``; the images decide ``data.image_channels``.

    Args:
        config: the configuration of a run.
        version: the dataset version.

    Raises:
        UsageError: there is nothing to learn. ConfigError: a setting has no meaning for the task or the
            images.
    """
    samples = samples_read(version.manifest, config.data.image_channels)
    config.augment.check_samples(samples)
    if samples.white is None and "litert-int8" in config.export.formats:
        raise ConfigError(
            f"export.formats has 'litert-int8', and the images of {version.ref} are {samples}, whose values "
            "have no range that 8 bits could cover",
            "leave it out; 'litert' and 'onnx' keep float32",
        )
    if learned(version, config.data.objects) in _OF_CLASSES and not version.manifest.classes:
        raise UsageError(
            f"no record of {version.ref} has a class: there is nothing to learn",
            "prepare it again with images that have some",
        )
    check_classes_known(version, config.data.objects)
    check_shares(config.data, len(version.data_sets))
    data = config.data.model_copy(update={"image_channels": samples.channels})
    config = config.model_copy(update={"data": data})
    kind = kind_of(version, config.data.objects)
    for group, key, value, plain in _special(config):
        if group not in kind.settings and value != plain:
            raise ConfigError(
                f"{key} = {value!r} has no meaning for {kind.name}: {version.ref} has "
                f"{LABEL_WORDS[learned(version)]}",
                f"leave it out: {key} = {plain!r}" + _instead(key, kind),
            )
    if config.run.framework not in kind.frameworks:
        raise ConfigError(
            f"{version.ref} has {LABEL_WORDS[learned(version)]}, which are learned with TensorFlow only",
            "leave run.framework out, or read them with open_dataset(...).torch in a loop of your own",
        )
    if kind.finds_places:
        config.augment.check_objects_follow()
        config = config.model_copy(update={"data": _seen(config.data, kind)})
    metric = config.run.best_metric
    if metric == "auto":
        run = config.run.model_copy(update={"best_metric": kind.figures[0]})
        return config.model_copy(update={"run": run})
    if metric not in kind.figures:
        raise ConfigError(
            f"run.best_metric = {metric!r} is no figure of {kind.name}, which {version.ref} is for",
            f"choose 'auto', or one of: {', '.join(kind.figures)}",
        )
    return config


def check_classes_known(version: DatasetVersion, of_objects: OfObjects) -> None:
    """Check what is said of classes that one of several data sets lacks.

    Where a model tells of each class whether it is shown, somebody must say it. Where each image has one
    class, every image tells of all classes, and the softmax is over all of them.

    Raises:
        ConfigError: nothing is said, or it has no meaning for the labels.
    """
    if not isinstance(version, JoinedVersion):
        return
    kind, missing = learned(version, of_objects), version.reference.missing
    if kind not in ("multi", "objects", "oriented"):
        if missing is not None:
            raise ConfigError(
                f"{MISSING_CLASSES[missing]!r} has no meaning for {LABEL_WORDS[learned(version)]}",
                "leave it out"
                + (": an image of one class shows none of the others" if kind == "class" else ""),
            )
        return
    if missing is not None:
        return
    for number, one in enumerate(version.data_sets):
        known = version.knows_classes(number)
        unknown = [name for name, has in zip(version.manifest.classes, known, strict=True) if not has]
        if unknown:
            raise ConfigError(
                f"{one.ref} has no class {' and '.join(map(repr, unknown[:5]))}: nothing says whether its "
                "images show it",
                f"name one more: {MISSING_CLASSES['ignored']!r} takes these classes out of the loss and the "
                f"figures of its images; {MISSING_CLASSES['absent']!r} if none of its images shows them",
            )


def _seen(data: DataSettings, kind: TaskKind) -> DataSettings:
    """Return the settings with the part and the size of an image in which places are found."""
    if kind.output == "pixels":
        return data.model_copy(update={"fit": data.fit or "stretch"})
    if data.fit == "crop":
        raise ConfigError(
            "data.fit = 'crop' would cut objects off", "leave it out: objects need data.fit = 'stretch'"
        )
    size = data.image_size or _OBJECTS_IMAGE_SIZE
    return data.model_copy(update={"fit": "stretch", "image_size": size})


def _instead(key: str, kind: TaskKind) -> str:
    """Return another remedy for the task as a clause of a sentence; empty if there is none."""
    if key == "data.balance" and "repeats" in kind.settings:
        return ", or draw images with rare labels more often: data.balance = 'repeat-factor'"
    return ""


def _special(config: TrainConfig) -> Iterator[tuple[Setting, str, object, object]]:
    """Yield the settings that not every task has a meaning for: group, key, value and neutral value."""
    data, augment = config.data, config.augment
    repeats: Setting = "repeats" if data.balance == "repeat-factor" else "classes"
    yield repeats, "data.balance", data.balance, "natural"
    yield "classes", "data.class_weights", data.class_weights, "none"
    yield "folds", "data.left_out_fold", data.left_out_fold, None
    yield "objects", "data.objects", data.objects, "boxes"
    yield "mixing", "augment.mixup", augment.mixup, 0.0
    yield "mixing", "augment.cutmix", augment.cutmix, 0.0
    yield "smoothing", "optimizer.label_smoothing", config.optimizer.label_smoothing, 0.0
    yield "forms", "export.formats", config.export.formats, ()
