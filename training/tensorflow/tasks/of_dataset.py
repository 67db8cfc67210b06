"""Make the task of a dataset version: the one place where a kind of labels meets its task. TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.config import TrainConfig
from shardmill.training.tasks.task import Task
from shardmill.training.tasks.traits import Learned, learned, traits_of
from shardmill.training.tensorflow.tasks import detection, multi_label, regression, segmentation, single_label

Builder = Callable[[DatasetVersion, TrainConfig], Task]

BUILDERS: Final[Mapping[Learned, Builder]] = {
    "class": single_label.SingleLabel.of,
    "multi": multi_label.MultiLabel.of,
    "targets": regression.Regression.of,
    "objects": detection.build,
    "mask": segmentation.build,
}


def task_of(version: DatasetVersion, config: TrainConfig) -> Task:
    """Make the task that models of a dataset version learn.

    Args:
        version: the dataset version; its train split has records.
        config: the configuration of the run.

    Raises:
        UsageError: the version has no labels to learn.
        DataError: its labels cannot be learned.
    """
    traits_of(version)
    return BUILDERS[learned(version)](version, config)
