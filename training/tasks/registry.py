"""The kinds of tasks, found in the modules of this package, by name and by labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import UsageError
from shardmill.infra.format.known_features import BOXES, WORDS
from shardmill.training.config.data import OfObjects
from shardmill.training.discovery import classes_in
from shardmill.training.tasks.kind import Learned, TaskKind

LABEL_WORDS: Final[dict[str, str]] = {
    **dict.fromkeys(("objects", "oriented", "keypoints"), "objects in images"),
    **dict(WORDS.items()),
}


_FOUND = classes_in("shardmill.training.tasks", TaskKind, leave_out=("registry", "settings"))
KINDS: Final[Mapping[str, TaskKind]] = {kind.name: kind for kind in (found() for found in _FOUND)}
_BY_LABELS: Final[Mapping[Learned, TaskKind]] = {kind.learned: kind for kind in KINDS.values()}
if len(_BY_LABELS) < len(KINDS):
    raise ValueError("two tasks learn the same kind of labels")


def learned(version: DatasetVersion, of_objects: OfObjects = "boxes") -> Learned:
    """Return the kind of labels that models of a dataset version learn; ``of_objects``: ``data.objects``."""
    if any(feature.name == BOXES for feature in version.manifest.extra_features):
        return "objects" if of_objects == "boxes" else of_objects
    return version.manifest.label_kind


def is_learned(version: DatasetVersion) -> bool:
    """Return whether a task learns the labels of a dataset version."""
    return learned(version) in _BY_LABELS


def kind_of(version: DatasetVersion, of_objects: OfObjects = "boxes") -> TaskKind:
    """Return the kind of the task that models of a dataset version learn.

    Raises:
        UsageError: its records have no labels, or labels that no task learns.
    """
    kind = learned(version, of_objects)
    if kind not in _BY_LABELS:
        why = "there is nothing that a model could learn from it" if kind == "none" else "no task learns that"
        raise UsageError(
            f"{version.ref} has {LABEL_WORDS[kind]}: {why}",
            "prepare it with labels (docs/labels.md), or read it with open_dataset in a loop of your own",
        )
    return _BY_LABELS[kind]
