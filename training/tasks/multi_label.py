"""Multi-label classification: each example has any number of C classes, also none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.arrays import Ints
from shardmill.training.config import TrainConfig
from shardmill.training.metrics.evaluation import Evaluation, Rows
from shardmill.training.metrics.multi_label import MultiLabelEvaluation, MultiLabelTally, resampled
from shardmill.training.tasks.arrow_lists import NUMBERS, lists_of, numbers_of
from shardmill.training.tasks.kind import Decisions, TaskKind
from shardmill.training.tasks.task import FormMeasure, LabelSpec, Mixed, Operations, Task, Values


class LabelsMeasure(FormMeasure):
    """Probabilities of classes, each by itself."""

    score_name = "exact_match"

    def scores(self, values: Values, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return whether exactly the right classes were predicted: bool [b]."""
        return np.asarray(((values > 0.5) == (labels > 0.5)).all(axis=1))

    def agree(self, values: Values, others: Values) -> npt.NDArray[np.bool_]:
        """Return where both predict the same classes: bool [b]."""
        return np.asarray(((values > 0.5) == (others > 0.5)).all(axis=1))


def _likely(names: Sequence[str], values: Sequence[float]) -> dict[str, Any]:
    return {"predicted": [name for name, value in zip(names, values, strict=True) if value > 0.5]}


class MultiLabelKind(TaskKind):
    """Any number of classes an example."""

    learned = "multi"
    evaluation = MultiLabelEvaluation
    settings = frozenset({"repeats", "mixing", "smoothing", "forms"})
    decisions = Decisions("probabilities", {"predicted": pa.list_(pa.string())}, _likely, "probabilities")
    fields = {  # noqa: RUF012  never changed
        "labels": pa.list_(pa.string()),  # names of the classes
        "predicted": pa.list_(pa.string()),
        "probabilities": NUMBERS,  # of each class by itself, by index
    }
    compared = ("labels", "predicted", "probabilities")

    def task(self, version: DatasetVersion, config: TrainConfig, operations: Operations) -> MultiLabel:
        """Make the task of a dataset version."""
        return MultiLabel(operations, len(version.manifest.classes), config.optimizer.label_smoothing)

    def tally(self, num_names: int) -> MultiLabelTally:
        """Return an empty tally."""
        return MultiLabelTally(num_names)

    def resampled(self, labels: Any, rows: Rows, num_names: int) -> Callable[[Ints], Evaluation]:
        """Return a function that evaluates records, each counted so many times."""
        return resampled(labels, rows, num_names)

    def arrays(self, names: list[str], labels: npt.NDArray[Any], rows: Rows) -> list[pa.Array]:
        """Return the columns of n examples: labels 0 or 1 [n, C], ``predicted`` bool [n, C]."""
        return [
            _chosen(names, labels > 0.5),
            _chosen(names, rows["predicted"]),
            lists_of(rows["probabilities"]),
        ]

    def read(self, names: list[str], table: pa.Table) -> tuple[npt.NDArray[Any], Rows]:
        """Return labels float32 [n, C], ``predicted`` bool [n, C] and ``probabilities`` float32 [n, C]."""
        rows = {
            "losses": table["loss"].to_numpy(),
            "predicted": _is_chosen(names, table["predicted"]),
            "probabilities": numbers_of(table["probabilities"]),
        }
        return _is_chosen(names, table["labels"]).astype(np.float32), rows

    def wrong(self, labels: npt.NDArray[Any], rows: Rows) -> npt.NDArray[np.bool_]:
        """Return which examples lack a label or got one too many: bool [n]."""
        return np.asarray(((labels > 0.5) != rows["predicted"]).any(axis=1))

    def label_words(self, names: Sequence[str], labels: Any, row: int) -> str:
        """Return the names of the classes."""
        return ", ".join(names[index] for index in np.flatnonzero(labels[row] > 0.5).tolist()) or "none"

    def predicted_words(self, names: Sequence[str], rows: Rows, row: int) -> str:
        """Return the names of the classes that were predicted."""
        return self.label_words(names, rows["predicted"], row)


@dataclass(frozen=True, slots=True)
class MultiLabel(Task):
    """Binary cross-entropy of each class, averaged over the classes.

    Attributes:
        ops: the operations of the framework.
        num_outputs: the number of classes, C.
        label_smoothing: share of the target that training moves to 1/2 (Szegedy et al. 2016).
    """

    kind = MultiLabelKind()
    score_name = "exact_match"

    ops: Operations
    num_outputs: int
    label_smoothing: float = 0.0

    @property
    def labels(self) -> LabelSpec:
        """The labels: 1 for each class of the example, else 0."""
        return LabelSpec("labels", (self.num_outputs,), "float32")

    def training_losses(self, outputs: Any, labels: Any, mixed: Mixed | None = None) -> Any:
        """Return the loss of each example: float32 [b]. Mixed: against both labels, in their shares."""
        targets = labels if mixed is None else mixed.targets(labels)
        smoothed = targets * (1.0 - self.label_smoothing) + 0.5 * self.label_smoothing
        return self.losses(outputs, smoothed)

    def losses(self, outputs: Any, labels: Any) -> Any:
        """Return the mean binary cross-entropy (nats) of each example: float32 [b]."""
        return self.ops.mean(self.ops.label_losses(outputs, labels))

    def scores(self, outputs: Any, labels: Any, mixed: Mixed | None = None) -> Any:
        """Return 1 where exactly the right classes were predicted, else 0: float32 [b].

        Of mixed labels those with a share of at least one half are right.
        """
        wanted = (labels if mixed is None else mixed.targets(labels)) >= 0.5
        return self.ops.cast(self.ops.all((outputs > 0.0) == wanted), "float32")

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Return ``predicted`` bool [b, C] and ``probabilities`` float32 [b, C], each class by itself."""
        return {"predicted": outputs > 0.0, "probabilities": self.ops.sigmoid(outputs)}

    def served(self, outputs: Any) -> dict[str, Any]:
        """Return ``probabilities`` float32 [b, C] and ``predicted`` bool [b, C]."""
        return {"probabilities": self.ops.sigmoid(outputs), "predicted": outputs > 0.0}

    def form_measure(self) -> LabelsMeasure:
        """Return how exported forms are compared with the model."""
        return LabelsMeasure()


def _chosen(names: list[str], is_chosen: npt.NDArray[np.bool_]) -> pa.ListArray:
    """Return the names of the columns that are chosen in each row: bool [n, C]."""
    offsets = np.concatenate([[0], np.cumsum(is_chosen.sum(axis=1))]).astype(np.int32)
    taken = pa.array(names, pa.string()).take(pa.array(np.nonzero(is_chosen)[1]))
    return pa.ListArray.from_arrays(offsets, taken)


def _is_chosen(names: list[str], column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return which names each list has: bool [n, C]. The inverse of ``_chosen``."""
    lists = column.combine_chunks()
    found = np.zeros((len(lists), len(names)), bool)
    indexes = pc.index_in(lists.flatten(), pa.array(names, pa.string())).to_numpy()
    found[np.repeat(np.arange(len(lists)), pc.list_value_length(lists).to_numpy()), indexes] = True
    return found
