"""What tasks of classes and of numbers share in every framework: sizes, measures and files of predictions.

A wing adds losses, scores and the decoding of outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import DataError
from shardmill.infra.format.known_features import TARGETS
from shardmill.training.config import TrainConfig
from shardmill.training.export.measures import ClassMeasure, LabelsMeasure, NumbersMeasure
from shardmill.training.reading.records.columns import Targets
from shardmill.training.results.metrics.multi_label import MultiLabelTally
from shardmill.training.results.metrics.regression import RegressionTally
from shardmill.training.results.metrics.single_label import SingleLabelTally
from shardmill.training.results.predictions.columns import (
    MultiLabelColumns,
    RegressionColumns,
    SingleLabelColumns,
)

_LEAST_SHARE = 1e-6  # share of a number below which float32 cannot tell changes from rounding


@dataclass(frozen=True, slots=True)
class Classes:
    """A task whose model gives a value for each class.

    Attributes:
        num_outputs: the number of classes, C.
        label_smoothing: share of the target that training moves away from the label (Szegedy et al. 2016): to
            all classes alike, or with several labels to 1/2.
    """

    num_outputs: int
    label_smoothing: float = 0.0

    @classmethod
    def of(cls, version: DatasetVersion, config: TrainConfig) -> Self:
        """Make the task of a dataset version."""
        return cls(len(version.manifest.classes), config.optimizer.label_smoothing)


class OneClass(Classes):
    """Single-label classification: each example has exactly one of C classes."""

    score_name = "accuracy"

    def form_measure(self) -> ClassMeasure:
        """Return how exported forms are compared with the model."""
        return ClassMeasure()

    def tally(self) -> SingleLabelTally:
        """Return an empty tally."""
        return SingleLabelTally(self.num_outputs)

    def columns(self) -> SingleLabelColumns:
        """Return the columns of a file of predictions."""
        return SingleLabelColumns()


class SeveralClasses(Classes):
    """Multi-label classification: each example has any number of C classes, also none."""

    score_name = "exact_match"

    def form_measure(self) -> LabelsMeasure:
        """Return how exported forms are compared with the model."""
        return LabelsMeasure()

    def tally(self) -> MultiLabelTally:
        """Return an empty tally."""
        return MultiLabelTally(self.num_outputs)

    def columns(self) -> MultiLabelColumns:
        """Return the columns of a file of predictions."""
        return MultiLabelColumns()


@dataclass(frozen=True, slots=True)
class Numbers:
    """Regression: each example has T numbers. Outputs of the model are standard scores.

    Attributes:
        mean: mean of each target over the train split.
        std: the standard deviation of each target over the train split, above 0.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    score_name = "absolute_error"

    @classmethod
    def of(cls, version: DatasetVersion, _config: TrainConfig) -> Self:
        """Make the task of a dataset version, with mean and deviation of its train split.

        Raises:
            DataError: a target has the same value in all records.
        """
        scale = target_scale(version)
        return cls(scale.mean, scale.std)

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not self.mean or min(self.std) <= 0:
            raise ValueError(
                f"mean {self.mean}, std {self.std}: needs one of each for every target, std above 0"
            )

    @property
    def num_outputs(self) -> int:
        """The number of targets, T."""
        return len(self.mean)

    def form_measure(self) -> NumbersMeasure:
        """Return how exported forms are compared with the model."""
        return NumbersMeasure(self.std)

    def tally(self) -> RegressionTally:
        """Return an empty tally."""
        return RegressionTally(self.num_outputs)

    def columns(self) -> RegressionColumns:
        """Return the columns of a file of predictions."""
        return RegressionColumns()


@dataclass(frozen=True, slots=True)
class TargetScale:
    """Mean and standard deviation of each target."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def target_scale(version: DatasetVersion) -> TargetScale:
    """Return mean and standard deviation of each target over the train split, from its indexes.

    Raises:
        DataError: a target has the same value in all records.
    """
    names = version.manifest.label_names
    parts = [version.rows(shard, [TARGETS])[TARGETS] for shard in version.shards("train")]
    column = pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.list_(pa.float32()))
    values = Targets.of(column, len(names)).values
    mean = values.mean(axis=0, dtype=np.float64)
    std = values.std(axis=0, dtype=np.float64)
    for number, name in enumerate(names):
        if std[number] <= _LEAST_SHARE * abs(mean[number]) or not std[number] > 0:
            raise DataError(
                f"the target {name!r} of {version.ref} is {mean[number]:g} in all train records",
                "leave its column out of source.columns.target_columns",
            )
    return TargetScale(tuple(mean.tolist()), tuple(std.tolist()))
