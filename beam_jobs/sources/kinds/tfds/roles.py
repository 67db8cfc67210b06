"""Choose the features of a dataset that are the image, the label, and further features."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from shardmill.beam_jobs.config import FeatureColumn, SourceConfig
from shardmill.beam_jobs.config.sources.table import FeatureKind
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.tfds.features import Leaf
from shardmill.beam_jobs.sources.kinds.tfds.metadata import read_text
from shardmill.beam_jobs.sources.kinds.tfds.objects import ObjectKeys, find_objects
from shardmill.infra.errors import ConfigError, NotFoundError
from shardmill.infra.format.contract import FEATURES, RESERVED_NAMES
from shardmill.infra.format.features import Dtype, Feature
from shardmill.infra.format.labels import LabelKind

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_]")
_OWN = frozenset(FEATURES) - {"id"}  # every record has its own


@dataclass(frozen=True)
class Column:
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
        channels: of the image; None if not told.
        label: key of the label; None if the images have none.
        labels: the kind of labels that it gives.
        classes: names of the classes, in the order of their numbers; empty if they have none.
        columns: the further features, sorted by name.
        left_out: key -> why a feature is not taken.
        objects: the features of the objects, which are columns too; None if the images have none.
    """

    image: str
    channels: int | None
    label: str | None
    labels: LabelKind
    classes: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
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
    image = _image(leaves, settings.rows.image)
    label = None if settings.labels == "none" else _label(leaves, supervised, settings)
    labels: LabelKind = "none" if label is None else "multi" if label.is_list else "class"
    group, split = settings.rows.group, settings.rows.split
    keys = {leaf.key for leaf in leaves}
    for name, key in (("group", group), ("split", split)):
        if key is not None and key not in keys:
            raise ConfigError(
                f"source.rows.{name} = {key!r} is no feature of the dataset", _there_are(leaves)
            )
    taken = {image.key, label.key if label else None}
    free = [leaf for leaf in leaves if leaf.key not in taken]
    objects = find_objects(leaves) if label is None and settings.labels in (None, "multi") else None
    others, left_out = _columns(_without(free, objects), settings.tfds.features)
    columns = others
    if objects is not None:
        labels = "multi"
        columns = (*others, *(_column(leaf, f"of_{_name(leaf.key)}") for leaf in objects.leaves))
        own = {leaf.key for leaf in objects.leaves}
        left_out |= {
            leaf.key: "it belongs to the objects"
            for leaf in free
            if leaf.key.startswith(objects.prefix) and leaf.key not in own
        }
    named = label if objects is None else objects.label
    classes = () if named is None or settings.rows.class_names else _class_names(named, folder)
    if settings.rows.classes_file:
        classes = ()
    label_key = label.key if label else None
    return Roles(image.key, image.channels, label_key, labels, classes, columns, left_out, objects)


def _without(leaves: Sequence[Leaf], objects: ObjectKeys | None) -> list[Leaf]:
    return [leaf for leaf in leaves if objects is None or not leaf.key.startswith(objects.prefix)]


def _image(leaves: Sequence[Leaf], asked: str | None) -> Leaf:
    """The feature with the image. A tensor of bytes may hold one, for users to decode."""
    images = [leaf for leaf in leaves if leaf.role == "image"]
    encoded = [leaf for leaf in leaves if leaf.dtype == "bytes" and leaf.shape == "scalar"]
    if asked is not None:
        for leaf in (*images, *encoded):
            if leaf.key == asked:
                return leaf
        raise ConfigError(f"source.rows.image = {asked!r} is no image of the dataset", _there_are(images))
    images = images or [leaf for leaf in encoded if leaf.key == "image"]
    named = [leaf for leaf in images if leaf.key == "image"] or images
    if len(named) == 1:
        return named[0]
    if not named:
        raise ConfigError(
            "the dataset has no feature of the type Image",
            "if a text or a tensor of bytes holds encoded images, name it: --set source.rows.image=NAME",
        )
    raise ConfigError(
        f"the dataset has several images: {', '.join(leaf.key for leaf in named)}",
        "say which one: --set source.rows.image=NAME",
    )


def _label(leaves: Sequence[Leaf], supervised: str | None, settings: SourceConfig) -> Leaf | None:
    """The feature with the class or classes of an image; None if there is none."""
    usable = [leaf for leaf in leaves if leaf.role == "class" and "/" not in leaf.key]
    if settings.rows.label is not None:
        for leaf in leaves:
            if leaf.key == settings.rows.label and leaf.role == "class":
                return leaf
        raise ConfigError(
            f"source.rows.label = {settings.rows.label!r} is no class label of the dataset",
            _there_are([leaf for leaf in leaves if leaf.role == "class"]),
        )
    for name in (supervised, "label", "labels"):
        for leaf in usable:
            if leaf.key == name:
                return leaf
    if len(usable) > 1:
        raise ConfigError(
            f"the dataset has several class labels: {', '.join(leaf.key for leaf in usable)}",
            "say which one: --set source.rows.label=NAME; the others become features",
        )
    return usable[0] if usable else None


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
            "correct it, or give the names with --set source.rows.classes_file=PATH",
        )
    return names


def _columns(
    leaves: Sequence[Leaf], asked: Sequence[str] | None
) -> tuple[tuple[Column, ...], dict[str, str]]:
    """Return the further features, and why others are not taken."""
    if asked is not None:
        if unknown := sorted(set(asked) - {leaf.key for leaf in leaves}):
            raise ConfigError(
                f"source.tfds.features names {unknown[0]!r}, which is no further feature of the dataset",
                _there_are(leaves),
            )
        leaves = [leaf for leaf in leaves if leaf.key in asked]
    columns: dict[str, Column] = {}
    left_out: dict[str, str] = {}
    for leaf in leaves:
        if leaf.role in ("image", "unusable"):
            left_out[leaf.key] = leaf.why or "a record has one image"
            continue
        if leaf.key in _OWN:
            continue
        name = _name(leaf.key)
        if name is None or name in columns:
            left_out[leaf.key] = "its name cannot be that of a feature, or is taken"
            continue
        columns[name] = _column(leaf, name)
    if asked is not None and left_out:
        key, why = next(iter(left_out.items()))
        raise ConfigError(f"source.tfds.features names {key!r}, which cannot be taken: {why}")
    return tuple(columns[name] for name in sorted(columns)), left_out


def _column(leaf: Leaf, name: str) -> Column:
    feature = Feature(
        name=name,
        dtype=leaf.dtype,
        shape=leaf.shape,
        length=leaf.length,
        is_text=leaf.is_text,
        column=leaf.key,
    )
    return Column(leaf.key, feature)


def _name(key: str) -> str | None:
    """The name of a further feature: letters, digits and _."""
    name = _NOT_IN_A_NAME.sub("_", key)
    if name in RESERVED_NAMES or not name[:1].isalpha():
        name = f"source_{name}"
    return None if name in RESERVED_NAMES else name


def _there_are(leaves: Sequence[Leaf]) -> str:
    return "there are: " + (", ".join(leaf.key for leaf in leaves[:20]) or "none")
