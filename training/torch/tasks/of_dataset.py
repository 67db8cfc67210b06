"""Make the task of a dataset version for PyTorch: a line here for each kind of labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import UsageError
from shardmill.infra.format.known_features import WORDS, LabelKind
from shardmill.training.config import TrainConfig
from shardmill.training.tasks.traits import traits_of
from shardmill.training.torch.tasks import multi_label, regression, single_label
from shardmill.training.torch.tasks.task import Task

Builder = Callable[[DatasetVersion, TrainConfig], Task]

BUILDERS: Final[Mapping[LabelKind, Builder]] = {
    "class": single_label.SingleLabel.of,
    "multi": multi_label.MultiLabel.of,
    "targets": regression.Regression.of,
}


def task_of(version: DatasetVersion, config: TrainConfig) -> Task:
    """Make the task that models of a dataset version learn.

    Args:
        version: the dataset version; its train split has records.
        config: the configuration of the run.

    Raises:
        UsageError: the version has no labels to learn, or run.framework = 'torch' does not learn them.
        DataError: its labels cannot be learned.
    """
    traits_of(version)
    kind = version.manifest.label_kind
    if kind not in BUILDERS:
        raise UsageError(
            f"run.framework = 'torch' does not learn {WORDS[kind]}, which {version.ref} has",
            "train with run.framework = 'tensorflow'",
        )
    return BUILDERS[kind](version, config)
