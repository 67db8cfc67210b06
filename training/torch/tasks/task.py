"""The interface between a task and the training step, evaluation and export of PyTorch."""

from __future__ import annotations

from typing import Any, Protocol

from shardmill.training.export.measures import FormMeasure
from shardmill.training.results.metrics.tally import Tally
from shardmill.training.results.predictions.columns import PredictionColumns
from shardmill.training.torch.data.transforms.device import AugmentedBatch


class Task(Protocol):
    """What a model learns, as ``shardmill.training.tasks.task.Task``; b is the number of rows."""

    @property
    def num_outputs(self) -> int:
        """The number of values that a model gives for each example, or for each place in it."""

    @property
    def score_name(self) -> str:
        """The name of the mean of ``scores`` over the examples of an epoch."""

    def training_losses(self, outputs: Any, batch: AugmentedBatch) -> Any:
        """Return the loss of each example in training, with label smoothing: float32 [b]."""

    def scores(self, outputs: Any, batch: AugmentedBatch) -> Any:
        """Return what a training step counts of each example: [b]; for classes whether it is a hit."""

    def evaluated(self, outputs: Any, labels: Any) -> dict[str, Any]:
        """Return all that is kept of each evaluated example: ``losses`` float32 [b], and its predictions."""

    def served(self, outputs: Any) -> Any:
        """Decode outputs to what an exported model returns: float32 [b, ...]."""

    def form_measure(self) -> FormMeasure:
        """Return how exported forms are compared with the model."""

    def tally(self) -> Tally:
        """Return an empty tally of predictions, for the figures of a split."""

    def columns(self) -> PredictionColumns:
        """Return the columns of a file of predictions."""
