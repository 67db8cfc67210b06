"""The interface of a task. The training step, the evaluation and the export know a task only by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from shardmill.training.export.measures import FormMeasure
from shardmill.training.results.metrics.tally import Tally
from shardmill.training.results.predictions.columns import PredictionColumns


@dataclass(frozen=True, slots=True)
class LabelSpec:
    """One tensor of the labels of a batch.

    Attributes:
        feature: the feature of a record that holds it.
        shape: its shape for one example; () for a number. A side is None where examples differ: such tensors
            are padded to the longest of the batch.
        dtype: the type of its elements.
        follows: how augmentation changes it: not at all, as boxes in the image, or as the pixels of a mask.
    """

    feature: str
    shape: tuple[int | None, ...]
    dtype: Literal["int32", "float32", "uint8", "bool"]
    follows: Literal["nothing", "boxes", "pixels"] = "nothing"


class Task(Protocol):
    """What a model learns. All arguments and results are tensors; b is the number of rows of a replica.

    Labels are one tensor [b, ...], or several by name; so are the outputs of a model. The loop and the
    evaluation pass both on as they are, and only ask that the first side of each tensor counts examples.
    """

    @property
    def labels(self) -> LabelSpec | Mapping[str, LabelSpec]:
        """The labels that the task needs: one tensor, or several by name."""

    @property
    def num_outputs(self) -> int:
        """The number of values that a model gives for each example, or for each place in it."""

    @property
    def score_name(self) -> str:
        """The name of the mean of ``scores`` over the examples of an epoch."""

    def training_losses(self, outputs: Any, labels: Any, own_share: Any | None = None) -> Any:
        """Return the loss of each example in training, with label smoothing: float32 [b].

        Args:
            outputs: float32, the model's output: [b, O] for classes and numbers.
            labels: as ``self.labels`` says.
            own_share: float32 [b], where MixUp or CutMix mixed the rows 2k and 2k + 1: the share of each
                row's own label, its partner has the rest. None: nothing was mixed.
        """

    def losses(self, outputs: Any, labels: Any) -> Any:
        """Return the loss of each example in evaluation, without label smoothing: float32 [b]."""

    def scores(self, outputs: Any, labels: Any, own_share: Any | None = None) -> Any:
        """Return what a training step counts of each example: float32 [b]; for classes 1 for a hit, or 0."""

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Decode outputs to predictions, as files hold them and people read them: name -> [b, ...]."""

    def served(self, outputs: Any) -> dict[str, Any]:
        """Decode outputs for an exported model: name -> [b, ...], the most important first."""

    def form_measure(self) -> FormMeasure | None:
        """Return how ONNX and LiteRT forms are compared with the model; None: they are not offered."""

    def tally(self) -> Tally:
        """Return an empty tally of predictions, for the figures of a split."""

    def columns(self) -> PredictionColumns:
        """Return the columns of a file of predictions."""


def evaluated(task: Task, outputs: Any, labels: Any) -> Mapping[str, Any]:
    """Return all that is kept of each evaluated example: ``losses`` float32 [b], and its predictions."""
    return {"losses": task.losses(outputs, labels), **task.predictions(outputs)}
