"""Choose the features of a dataset that are the image, the label, and further features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shardmill.beam_jobs.config import FeatureColumn, SourceConfig
from shardmill.beam_jobs.config.columns import FeatureKind, feature_name
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.tfds.metadata import Leaf, read_text
from shardmill.beam_jobs.sources.kinds.tfds.objects import ObjectKeys, find_objects
from shardmill.beam_jobs.sources.roles import Column, Offer, check_there, image_of
from shardmill.infra.errors import ConfigError, NotFoundError
from shardmill.infra.format.contract import FEATURES
from shardmill.infra.format.features import Dtype, Feature
from shardmill.infra.format.known_features import TARGETS, LabelKind

_OWN = frozenset(FEATURES) - {"id"}  # every record has its own


@dataclass(frozen=True)
class FurtherColumn:
    """A further feature.

    Attributes:
        key: in the records of the source.
        feature: as the records of the dataset have it.
    """

    key: str
    feature: Feature


@dataclass(frozen=True)
class Roles:
    """The features that are read.

    Attributes:
        image: key of the image.
        label: key of the label; None if the images have none.
        labels: the kind of labels that it gives.
        classes: names of the classes, in the order of their numbers; empty if they have none.
        columns: the further features, sorted by name.
        left_out: key -> why a feature is not taken.
        objects: the features of the objects, which are columns too; None if the images have none.
    """

    image: str
    label: str | None
    labels: LabelKind
    classes: tuple[str, ...] = ()
    columns: tuple[FurtherColumn, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    objects: ObjectKeys | None = None

    @property
    def object_columns(self) -> list[str | None]:
        """The names of the features with boxes, classes and crowds of objects."""
        assert self.objects is not None, "the images have objects"
        names = {column.key: column.feature.name for column in self.columns}
        crowd = self.objects.crowd
        return [names[leaf.key] if leaf else None for leaf in (self.objects.boxes, self.objects.label, crowd)]

    def asked(self) -> dict[str, FeatureColumn]:
        """Return the further features as settings: name -> how the values of its column are read."""
        kinds: dict[Dtype, FeatureKind] = {"int64": "int64", "float32": "float", "bytes": "bytes"}
        return {
            feature.name: FeatureColumn(
                column=key, dtype="text" if feature.is_text else kinds[feature.dtype], length=feature.length
            )
            for key, feature in ((column.key, column.feature) for column in self.columns)
        }


def roles_of(
    leaves: Sequence[Leaf], supervised: str | None, settings: SourceConfig, folder: SourceFolder
) -> Roles:
    """Find the role of each feature.

    Args:
        leaves: all features.
        supervised: key of the feature that the metadata call the one to be predicted.
        settings: of the source; ``source.labels`` unset: the kind that the features give.
        folder: the source, with the names of the classes.

    Raises:
        ConfigError: which is meant cannot be told, or a setting names none.
    """
    given = settings.columns
    image = _image(leaves, given.image)
    _check_samples(leaves, image)
    label = None
    if settings.labels not in ("none", "targets"):
        label = _label(leaves, supervised, given.label)
    labels: LabelKind = "none" if label is None else "multi" if label.is_list else "class"
    for name, key in (("group", given.group), ("split", given.split)):
        if key is not None:
            check_there(_offer(leaves), name, key)
    taken = {image, label.key if label else None}
    free = [leaf for leaf in leaves if leaf.key not in taken]
    objects = find_objects(leaves) if label is None and settings.labels in (None, "multi") else None
    if label is None and objects is None and settings.labels in (None, "targets"):
        label = _targets(leaves, given.label)
        if label is not None:
            labels = "targets"
            free = [leaf for leaf in free if leaf.key != label.key]
    others, left_out = _columns(_without(free, objects), given.features)
    columns = others
    if objects is not None:
        labels = "multi"
        columns = (*others, *(_column(leaf, f"of_{feature_name(leaf.key)}") for leaf in objects.leaves))
        own = {leaf.key for leaf in objects.leaves}
        left_out |= {
            leaf.key: "it belongs to the objects"
            for leaf in free
            if leaf.key.startswith(objects.prefix) and leaf.key not in own
        }
    named = label if objects is None else objects.label
    is_told = named is None or labels == "targets" or given.class_names or given.classes_file
    classes = () if is_told or named is None else _class_names(named, folder)
    label_key = label.key if label else None
    return Roles(image, label_key, labels, classes, columns, left_out, objects)


def _without(leaves: Sequence[Leaf], objects: ObjectKeys | None) -> list[Leaf]:
    return [leaf for leaf in leaves if objects is None or not leaf.key.startswith(objects.prefix)]


def _offer(leaves: Sequence[Leaf]) -> Offer:
    def column(leaf: Leaf) -> Column:
        is_image = leaf.role == "image"
        return Column(leaf.key, holds_images=is_image, is_image=is_image, is_class=leaf.role == "class")

    return Offer("the dataset", "feature", [column(leaf) for leaf in leaves])


def _image(leaves: Sequence[Leaf], asked: str | None) -> str:
    """The feature with the image. A tensor of bytes may hold one, for users to decode."""
    images = {leaf.key for leaf in leaves if leaf.role == "image"}
    encoded = {leaf.key for leaf in leaves if leaf.dtype == "bytes" and leaf.shape == "scalar"}
    if asked in encoded or (asked is None and "image" in images):
        return asked or "image"
    if asked is None and not images and "image" in encoded:
        return "image"
    return image_of(_offer(leaves), asked)


def _check_samples(leaves: Sequence[Leaf], image: str) -> None:
    """Refuse numbers that TensorFlow Datasets stores as if they were colours."""
    for leaf in leaves:
        if leaf.key == image and leaf.role == "image" and leaf.why:
            raise ConfigError(
                f"the images {image!r} of the dataset are {leaf.why}, whose bytes are stored as colours",
                "write them as files of their own, such as TIFF, and prepare that folder",
            )


def _label(leaves: Sequence[Leaf], supervised: str | None, asked: str | None) -> Leaf | None:
    """The feature with the class or classes of an image; None if there is none."""
    classes = {leaf.key: leaf for leaf in leaves if leaf.role == "class"}
    usable = [key for key in classes if "/" not in key]
    if asked is not None:
        if asked not in classes:
            raise ConfigError(
                f"source.columns.label = {asked!r} is no class label of the dataset",
                f"there are: {', '.join(classes) or 'none'}",
            )
        return classes[asked]
    named = [name for name in (supervised, "label", "labels") if name in usable]
    if len(usable) > 1 and not named:
        raise ConfigError(
            f"the dataset has several class labels: {', '.join(usable)}",
            "say which one: --set source.columns.label=NAME; the others become features",
        )
    return classes[(named or usable)[0]] if usable else None


def _targets(leaves: Sequence[Leaf], asked: str | None) -> Leaf | None:
    """The feature with the numbers to predict: that called ``targets``, or the one that is asked for."""
    name = asked or TARGETS
    numbers = (leaf for leaf in leaves if leaf.dtype in ("float32", "int64") and leaf.shape != "variable")
    return next((leaf for leaf in numbers if leaf.key == name and leaf.role == "values"), None)


def _class_names(label: Leaf, folder: SourceFolder) -> tuple[str, ...]:
    """Read the names of classes; empty if there is no such file.

    Raises:
        ConfigError: they are not those of the feature.
    """
    try:
        text = read_text(folder, label.names_file)
    except NotFoundError:
        return ()
    names = tuple(name.strip() for name in text.split("\n") if name.strip())
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice or (label.num_classes is not None and len(names) != label.num_classes):
        why = (
            f"has the name {twice[0]!r} twice"
            if twice
            else f"has {len(names):,} names, and features.json says {label.num_classes:,} classes"
        )
        raise ConfigError(
            f"{label.names_file} {why}",
            "correct it, or give the names with --set source.columns.classes_file=PATH",
        )
    return names


def _columns(
    leaves: Sequence[Leaf], asked: Mapping[str, FeatureColumn] | None
) -> tuple[tuple[FurtherColumn, ...], dict[str, str]]:
    """Return the further features, and why others are not taken."""
    named = [(feature_name(leaf.key), leaf) for leaf in leaves]
    if asked is not None:
        there = {leaf.key: leaf for leaf in leaves}
        keys = {name: one.column or name for name, one in asked.items()}
        if unknown := sorted(set(keys.values()) - set(there)):
            check_there(_offer(leaves), "features", unknown[0])
        named = [(name, there[key]) for name, key in keys.items()]
    columns: dict[str, FurtherColumn] = {}
    left_out: dict[str, str] = {}
    for name, leaf in named:
        if leaf.role in ("image", "unusable"):
            left_out[leaf.key] = leaf.why or "a record has one image"
        elif leaf.key in _OWN:
            continue
        elif name in columns:
            left_out[leaf.key] = "its name is taken"
        else:
            columns[name] = _column(leaf, name)
    if asked is not None and left_out:
        key, why = next(iter(left_out.items()))
        raise ConfigError(f"source.columns.features names {key!r}, which cannot be taken: {why}")
    return tuple(columns[name] for name in sorted(columns)), left_out


def _column(leaf: Leaf, name: str) -> FurtherColumn:
    feature = Feature(
        name=name,
        dtype=leaf.dtype,
        shape=leaf.shape,
        length=leaf.length,
        is_text=leaf.is_text,
        column=leaf.key,
    )
    return FurtherColumn(leaf.key, feature)
