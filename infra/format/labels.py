"""Kinds of labels: what the records of a dataset say beside the image.

==========  =====================================================================================
class       one class a record: the features ``label`` and ``label_name``
multi       any number of classes a record: the feature ``labels``, indexes into the classes
targets     numbers: the feature ``targets``, float32 of fixed length
mask        the class of each pixel (``known_features``); ``labels`` has the classes that it shows
none        nothing; further features may hold text or whatever else
==========  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from shardmill.infra.errors import UsageError
from shardmill.infra.format.features import Feature

LabelKind = Literal["class", "multi", "targets", "mask", "none"]

LABELS: Final = "labels"  # feature of kind multi
TARGETS: Final = "targets"  # feature of kind targets
LABEL_FEATURES: Final = frozenset({LABELS, TARGETS})

NO_CLASS: Final = -1  # in the column ``label`` of indexes, unless the kind is class

WORDS: Final[dict[LabelKind, str]] = {
    "class": "one class an image",
    "multi": "several labels an image",
    "targets": "numbers",
    "mask": "a mask of classes for each image",
    "none": "no labels",
}


def labels_feature(column: str | None) -> Feature:
    """Return the feature of kind multi."""
    return Feature(name=LABELS, dtype="int64", shape="variable", column=column)


def targets_feature(count: int, column: str | None) -> Feature:
    """Return the feature of kind targets."""
    return Feature(name=TARGETS, dtype="float32", shape="fixed", length=count, column=column)


def target_names(feature: Feature) -> list[str]:
    """Return the name of each number of the feature of kind targets: that of its column, else its number."""
    count = feature.length or 1
    names = (feature.column or "").split(", ")
    if len(names) == count and all(names) and len(set(names)) == count:
        return names
    return [f"target {number}" for number in range(1, count + 1)]


def class_name(classes: Sequence[str], label: int) -> str:
    """Return the name of a record's class; empty if it has no single class."""
    return "" if label == NO_CLASS else classes[label]


def check_has_classes(kind: LabelKind, ref: str, what: str) -> None:
    """Check that each record has one class.

    Args:
        kind: kind of labels of the version.
        ref: names the version.
        what: the thing that needs classes, as the subject of a sentence.

    Raises:
        UsageError: the version has labels of another kind.
    """
    if kind != "class":
        raise UsageError(f"{what} needs one class an image, and {ref} has {WORDS[kind]}")
