"""The interface of a task. The training step, the evaluation and the export know a task only by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from training.results.metrics.tally import Tally
from training.results.predictions.columns import PredictionColumns


@dataclass(frozen=True, slots=True)
class LabelSpec:
    """The labels of a batch.

    Attributes:
        feature: the feature of a record that holds the label.
        shape: the shape of the label of one example; () for a number.
        dtype: the type of its elements.
    """

    feature: str
    shape: tuple[int, ...]
    dtype: Literal["int32", "float32"]


class Task(Protocol):
    """What a model learns. All arguments and results are tensors; b is the number of rows of a replica."""

    @property
    def labels(self) -> LabelSpec:
        """The labels that the task needs: [b, *shape] in a batch."""

    @property
    def num_outputs(self) -> int:
        """The width O of the model's output."""

    @property
    def score_name(self) -> str:
        """The name of the mean of ``scores`` over the examples of an epoch."""

    def training_losses(self, outputs: Any, labels: Any, own_share: Any | None = None) -> Any:
        """Return the loss of each example in training, with label smoothing: float32 [b].

        Args:
            outputs: float32 [b, O], the model's output.
            labels: [b, *shape].
            own_share: float32 [b], where MixUp or CutMix mixed the rows 2k and 2k + 1: the share of each
                row's own label, its partner has the rest. None: nothing was mixed.
        """

    def losses(self, outputs: Any, labels: Any) -> Any:
        """Return the loss of each example in evaluation, without label smoothing: float32 [b]."""

    def scores(self, outputs: Any, labels: Any, own_share: Any | None = None) -> Any:
        """Return what a training step counts of each example: float32 [b]; for classes 1 for a hit, or 0."""

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Decode outputs (float32 [b, O]) to what people and files want: name -> [b, ...]."""

    def tally(self) -> Tally:
        """Return an empty tally of predictions, for the figures of a split."""

    def columns(self) -> PredictionColumns:
        """Return the columns of a file of predictions."""


def evaluated(task: Task, outputs: Any, labels: Any) -> Mapping[str, Any]:
    """Return all that is kept of each evaluated example: ``losses`` float32 [b], and its predictions."""
    return {"losses": task.losses(outputs, labels), **task.predictions(outputs)}
