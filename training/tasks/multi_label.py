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
        """Return whether exactly the right classes were predicted: bool [b]. NaN: any is right."""
        return np.asarray((((values > 0.5) == (labels > 0.5)) | np.isnan(labels)).all(axis=1))

    def agree(self, values: Values, others: Values) -> npt.NDArray[np.bool_]:
        """Return where both predict the same classes: bool [b]."""
        return np.asarray(((values > 0.5) == (others > 0.5)).all(axis=1))


def _likely(names: Sequence[str], values: Sequence[float]) -> dict[str, Any]:
    return {"predicted": [name for name, value in zip(names, values, strict=True) if value > 0.5]}


class MultiLabelKind(TaskKind):
    """Any number of classes an example."""

    learned = "multi"
    evaluation = MultiLabelEvaluation
    settings = frozenset({"folds", "repeats", "mixing", "smoothing", "forms"})
    decisions = Decisions("probabilities", {"predicted": pa.list_(pa.string())}, _likely, "probabilities")
    fields = {  # noqa: RUF012  never changed
        "labels": pa.list_(pa.string()),  # names of the classes
        "unknown": pa.list_(pa.string()),  # classes that the data set of the record lacks, where ignored
        "predicted": pa.list_(pa.string()),
        "probabilities": NUMBERS,  # of each class by itself, by index
    }
    compared = ("labels", "unknown", "predicted", "probabilities")

    def task(self, version: DatasetVersion, config: TrainConfig, operations: Operations) -> MultiLabel:
        """Make the task of a dataset version."""
        known = [version.knows_classes(number) for number in range(len(version.data_sets))]
        is_partial = not all(map(all, known))
        classes, smoothing = version.manifest.classes, config.optimizer.label_smoothing
        return MultiLabel(operations, len(classes), smoothing, is_partial)

    def tally(self, num_names: int) -> MultiLabelTally:
        """Return an empty tally."""
        return MultiLabelTally(num_names)

    def resampled(self, labels: Any, rows: Rows, num_names: int) -> Callable[[Ints], Evaluation]:
        """Return a function that evaluates records, each counted so many times."""
        return resampled(labels, rows, num_names)

    def arrays(self, names: list[str], labels: npt.NDArray[Any], rows: Rows) -> list[pa.Array]:
        """Return the columns of n examples: labels 0, 1 or NaN [n, C], ``predicted`` bool [n, C]."""
        return [
            _chosen(names, labels > 0.5),
            _chosen(names, np.isnan(labels)),
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
        labels = _is_chosen(names, table["labels"]).astype(np.float32)
        if "unknown" in table.column_names:
            labels[_is_chosen(names, table["unknown"])] = np.nan
        return labels, rows

    def wrong(self, labels: npt.NDArray[Any], rows: Rows) -> npt.NDArray[np.bool_]:
        """Return which examples lack a label or got one too many: bool [n]."""
        return np.asarray((((labels > 0.5) != rows["predicted"]) & ~np.isnan(labels)).any(axis=1))

    def label_words(self, names: Sequence[str], labels: Any, row: int) -> str:
        """Return the names of the classes."""
        return ", ".join(names[index] for index in np.flatnonzero(labels[row] > 0.5).tolist()) or "none"

    def predicted_words(self, names: Sequence[str], rows: Rows, row: int) -> str:
        """Return the names of the classes that were predicted."""
        return self.label_words(names, rows["predicted"], row)


@dataclass(frozen=True, slots=True)
class MultiLabel(Task):
    """Binary cross-entropy of each class, averaged over the classes.

    Classes that are unknown of an example count neither in its loss nor in its score: the mean is over the
    others (Durand, Mehrasa and Mori: Learning a deep ConvNet for multi-label classification with partial
    labels, 2019, with the weight of each example in inverse proportion to its known classes).

    Attributes:
        ops: the operations of the framework.
        num_outputs: the number of classes, C.
        label_smoothing: share of the target that training moves to 1/2 (Szegedy et al. 2016).
        is_partial: labels may be NaN: it is unknown whether the example has the class.
    """

    kind = MultiLabelKind()
    score_name = "exact_match"

    ops: Operations
    num_outputs: int
    label_smoothing: float = 0.0
    is_partial: bool = False

    @property
    def labels(self) -> LabelSpec:
        """The labels: 1 for each class of the example, else 0, or NaN."""
        return LabelSpec("labels", (self.num_outputs,), "float32")

    def training_losses(self, outputs: Any, labels: Any, mixed: Mixed | None = None) -> Any:
        """Return the loss of each example: float32 [b]. Mixed: against both labels, in their shares."""
        targets = self._targets(labels, mixed)
        smoothed = targets * (1.0 - self.label_smoothing) + 0.5 * self.label_smoothing
        return self.losses(outputs, smoothed)

    def losses(self, outputs: Any, labels: Any) -> Any:
        """Return the mean binary cross-entropy (nats) of each example: float32 [b]; 0 if nothing is known."""
        ops = self.ops
        if not self.is_partial:
            return ops.mean(ops.label_losses(outputs, labels))
        is_unknown = ops.is_nan(labels)
        # Also before the loss: the gradient of a NaN that is left out afterwards would be NaN.
        each = ops.label_losses(outputs, ops.where(is_unknown, 0.0, labels))
        share = 1.0 - ops.mean(ops.cast(is_unknown, "float32"))
        total = ops.mean(ops.where(is_unknown, 0.0, each))
        return total / ops.where(share > 0.0, share, 1.0)

    def scores(self, outputs: Any, labels: Any, mixed: Mixed | None = None) -> Any:
        """Return 1 where exactly the right classes were predicted, else 0: float32 [b].

        Of mixed labels those with a share of at least one half are right.
        """
        targets = self._targets(labels, mixed)
        is_right = (outputs > 0.0) == (targets >= 0.5)
        if self.is_partial:
            is_right = is_right | self.ops.is_nan(targets)
        return self.ops.cast(self.ops.all(is_right), "float32")

    def _targets(self, labels: Any, mixed: Mixed | None) -> Any:
        """Return the labels as mixed: float32 [b, C]. Of two examples a class is known where both know it."""
        if mixed is None:
            return labels
        targets, own = mixed.targets(labels), mixed.own_share[:, None]
        if self.is_partial:  # a share of 0 does not make a number of NaN
            targets = self.ops.where(own >= 1.0, labels, self.ops.where(own <= 0.0, mixed.labels, targets))
        return targets

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
