"""Regression: each example has T numbers. Outputs of the model are standard scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import DataError
from shardmill.infra.format.known_features import TARGETS
from shardmill.training.arrays import Ints
from shardmill.training.config import TrainConfig
from shardmill.training.metrics.evaluation import Evaluation, Rows
from shardmill.training.metrics.regression import RegressionEvaluation, RegressionTally, resampled
from shardmill.training.reading.records.columns import Targets
from shardmill.training.tasks.arrow_lists import NUMBERS, lists_of, numbers_of
from shardmill.training.tasks.kind import Decisions, TaskKind
from shardmill.training.tasks.task import FormMeasure, LabelSpec, Mixed, Operations, Task, Values

_LEAST_SHARE = 1e-6  # share of a number below which float32 cannot tell changes from rounding
_CLOSE = 0.1  # two models agree within this share of a target's deviation


class NumbersMeasure(FormMeasure):
    """Numbers, of targets with these standard deviations over the train split."""

    output_name = "values"
    score_name = "r2"

    def __init__(self, std: tuple[float, ...]) -> None:
        self._std = np.array(std)

    def scores(self, values: Values, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the part of each example in R², with the variance of the train split: [b]."""
        return np.asarray(1.0 - np.square((values - labels) / self._std).mean(axis=1))

    def agree(self, values: Values, others: Values) -> npt.NDArray[np.bool_]:
        """Return where all numbers differ by less than a tenth of their deviations: bool [b]."""
        return np.asarray((self.differences(values, others) < _CLOSE).all(axis=1))

    def differences(self, values: Values, others: Values) -> npt.NDArray[Any]:
        """Return the differences in deviations of the targets: [b, T]."""
        return np.asarray(np.abs(values - others) / self._std)


class RegressionKind(TaskKind):
    """Numbers."""

    learned = "targets"
    evaluation = RegressionEvaluation
    settings = frozenset({"folds", "mixing", "forms"})
    decisions = Decisions("values", {}, lambda _names, _values: {}, "predicted", "{:.7g}")
    fields = {  # noqa: RUF012  never changed
        "target": NUMBERS,  # in its unit
        "predicted": NUMBERS,
    }
    compared = ("target", "predicted")
    has_numbers = True
    is_exact = False

    def task(self, version: DatasetVersion, config: TrainConfig, operations: Operations) -> Regression:
        """Make the task of a dataset version, with mean and deviation of its train split.

        Raises:
            DataError: a target has the same value in all records.
        """
        return Regression(operations, *target_scale(version))

    def tally(self, num_names: int) -> RegressionTally:
        """Return an empty tally."""
        return RegressionTally(num_names)

    def resampled(self, labels: Any, rows: Rows, num_names: int) -> Callable[[Ints], Evaluation]:
        """Return a function that evaluates records, each counted so many times."""
        return resampled(labels, rows, num_names)

    def arrays(self, _names: list[str], labels: npt.NDArray[Any], rows: Rows) -> list[pa.Array]:
        """Return the columns of n examples: labels and ``predicted`` float [n, T]."""
        return [lists_of(labels), lists_of(rows["predicted"])]

    def read(self, _names: list[str], table: pa.Table) -> tuple[npt.NDArray[Any], Rows]:
        """Return labels and ``predicted``, both float32 [n, T]."""
        rows = {"losses": table["loss"].to_numpy(), "predicted": numbers_of(table["predicted"])}
        return numbers_of(table["target"]), rows

    def wrong(self, labels: npt.NDArray[Any], _rows: Rows) -> npt.NDArray[np.bool_]:
        """Return True for all examples: no number is predicted exactly."""
        return np.ones(len(labels), bool)

    def label_words(self, names: Sequence[str], labels: Any, row: int) -> str:
        """Return the numbers with the names of their targets."""
        return ", ".join(f"{name} {value:.4g}" for name, value in zip(names, labels[row], strict=True))

    def predicted_words(self, names: Sequence[str], rows: Rows, row: int) -> str:
        """Return the predicted numbers with the names of their targets."""
        return self.label_words(names, rows["predicted"], row)


@dataclass(frozen=True, slots=True)
class Regression(Task):
    """Squared error of standard scores, so that targets of any size train alike.

    ``predictions`` turns the outputs of the model back into the unit of the labels.

    Attributes:
        ops: the operations of the framework.
        mean: mean of each target over the train split.
        std: the standard deviation of each target over the train split, above 0.
    """

    kind = RegressionKind()
    score_name = "absolute_error"

    ops: Operations
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not self.mean or min(self.std) <= 0:
            raise ValueError(
                f"mean {self.mean}, std {self.std}: needs one of each for every target, std above 0"
            )

    @property
    def num_outputs(self) -> int:
        """The number of targets, T."""
        return len(self.mean)

    @property
    def labels(self) -> LabelSpec:
        """The targets in their own unit."""
        return LabelSpec("targets", (self.num_outputs,), "float32")

    def training_losses(self, outputs: Any, labels: Any, mixed: Mixed | None = None) -> Any:
        """Return the loss of each example: float32 [b]. Mixed: against the mixed target."""
        return self.losses(outputs, labels if mixed is None else mixed.targets(labels))

    def losses(self, outputs: Any, labels: Any) -> Any:
        """Return the squared error of each example in standard scores, averaged over the targets: [b]."""
        mean, std = (self.ops.constant(values, outputs) for values in (self.mean, self.std))
        errors = outputs - (labels - mean) / std
        return self.ops.mean(errors * errors)

    def scores(self, outputs: Any, labels: Any, mixed: Mixed | None = None) -> Any:
        """Return the absolute error in the unit of the labels, averaged over the targets: float32 [b]."""
        wanted = labels if mixed is None else mixed.targets(labels)
        return self.ops.mean(abs(self._values(outputs) - wanted))

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Return ``predicted`` float32 [b, T], in the unit of the labels."""
        return {"predicted": self._values(outputs)}

    def served(self, outputs: Any) -> dict[str, Any]:
        """Return ``values`` float32 [b, T], in the unit of the labels."""
        return {"values": self._values(outputs)}

    def form_measure(self) -> NumbersMeasure:
        """Return how exported forms are compared with the model."""
        return NumbersMeasure(self.std)

    def _values(self, outputs: Any) -> Any:
        mean, std = (self.ops.constant(values, outputs) for values in (self.mean, self.std))
        return outputs * std + mean


def target_scale(version: DatasetVersion) -> tuple[tuple[float, ...], tuple[float, ...]]:
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
    return tuple(mean.tolist()), tuple(std.tolist())
