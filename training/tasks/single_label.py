"""Single-label classification: each example has exactly one of C classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.arrays import Ints
from shardmill.training.config import TrainConfig
from shardmill.training.metrics.evaluation import Evaluation, Rows
from shardmill.training.metrics.single_label import SingleLabelEvaluation, SingleLabelTally, resampled
from shardmill.training.tasks.arrow_lists import NUMBERS, lists_of, numbers_of
from shardmill.training.tasks.kind import Decisions, TaskKind
from shardmill.training.tasks.task import FormMeasure, LabelSpec, Mixed, Operations, Task, Values


class ClassMeasure(FormMeasure):
    """Probabilities of classes, of which the likeliest is predicted."""

    score_name = "accuracy"

    def scores(self, values: Values, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return whether the class was predicted: bool [b]."""
        return np.asarray(values.argmax(axis=1) == labels)

    def agree(self, values: Values, others: Values) -> npt.NDArray[np.bool_]:
        """Return where both predict the same class: bool [b]."""
        return np.asarray(values.argmax(axis=1) == others.argmax(axis=1))


def _likeliest(names: Sequence[str], values: Sequence[float]) -> dict[str, Any]:
    label = int(np.argmax(values))
    return {"predicted": names[label], "probability": values[label]}


class SingleLabelKind(TaskKind):
    """One class an example."""

    learned = "class"
    evaluation = SingleLabelEvaluation
    settings = frozenset({"classes", "folds", "repeats", "mixing", "smoothing", "forms"})
    decisions = Decisions(
        "probabilities",
        {"predicted": pa.string(), "probability": pa.float32()},
        _likeliest,
        "probabilities",
    )
    fields = {  # noqa: RUF012  never changed
        "label": pa.dictionary(pa.int32(), pa.string()),  # name of the class
        "predicted": pa.dictionary(pa.int32(), pa.string()),
        "label_index": pa.int32(),
        "predicted_index": pa.int32(),
        "probabilities": NUMBERS,  # of each class, by index
    }
    compared = ("label_index", "predicted_index")

    def task(self, version: DatasetVersion, config: TrainConfig, operations: Operations) -> SingleLabel:
        """Make the task of a dataset version."""
        return SingleLabel(operations, len(version.manifest.classes), config.optimizer.label_smoothing)

    def tally(self, num_names: int) -> SingleLabelTally:
        """Return an empty tally."""
        return SingleLabelTally(num_names)

    def resampled(self, labels: Any, rows: Rows, num_names: int) -> Callable[[Ints], Evaluation]:
        """Return a function that evaluates records, each counted so many times."""
        return resampled(labels, rows, num_names)

    def arrays(self, names: list[str], labels: npt.NDArray[Any], rows: Rows) -> list[pa.Array]:
        """Return the columns of n examples: labels int [n], ``predicted`` [n], ``probabilities`` [n, C]."""
        predicted = rows["predicted"]
        return [
            _named(names, labels),
            _named(names, predicted),
            pa.array(labels.astype(np.int32)),
            pa.array(predicted.astype(np.int32)),
            lists_of(rows["probabilities"]),
        ]

    def read(self, _names: list[str], table: pa.Table) -> tuple[npt.NDArray[Any], Rows]:
        """Return labels and ``predicted``, int32 [n], and ``probabilities`` [n, C] if the table has them."""
        rows = {"losses": table["loss"].to_numpy(), "predicted": table["predicted_index"].to_numpy()}
        if "probabilities" in table.column_names:
            rows["probabilities"] = numbers_of(table["probabilities"])
        return table["label_index"].to_numpy(), rows

    def wrong(self, labels: npt.NDArray[Any], rows: Rows) -> npt.NDArray[np.bool_]:
        """Return which examples were taken for another class: bool [n]."""
        return np.asarray(labels != rows["predicted"])

    def label_words(self, names: Sequence[str], labels: Any, row: int) -> str:
        """Return the name of the class."""
        return names[int(labels[row])]

    def predicted_words(self, names: Sequence[str], rows: Rows, row: int) -> str:
        """Return the name of the class that was predicted."""
        return names[int(rows["predicted"][row])]

    def likelihoods(self, labels: Any, rows: Rows, row: int) -> tuple[float | None, float | None]:
        """Return the probabilities of the label and of the class that was predicted."""
        likely = rows["probabilities"][row]
        return float(likely[labels[row]]), float(likely[rows["predicted"][row]])


@dataclass(frozen=True, slots=True)
class SingleLabel(Task):
    """Softmax cross-entropy over logits.

    Attributes:
        ops: the operations of the framework.
        num_outputs: the number of classes, C.
        label_smoothing: share of the target that training spreads over all classes (Szegedy et al. 2016).
    """

    kind = SingleLabelKind()
    score_name = "accuracy"

    ops: Operations
    num_outputs: int
    label_smoothing: float = 0.0

    @property
    def labels(self) -> LabelSpec:
        """The class of each example."""
        return LabelSpec("label", (), "int32")

    def training_losses(self, outputs: Any, labels: Any, mixed: Mixed | None = None) -> Any:
        """Return the cross-entropy of each example: float32 [b]. Mixed: of both labels, in their shares."""
        own = self.ops.class_losses(outputs, labels, self.label_smoothing)
        if mixed is None:
            return own
        others = self.ops.class_losses(outputs, mixed.labels, self.label_smoothing)
        return mixed.own_share * own + (1.0 - mixed.own_share) * others

    def losses(self, outputs: Any, labels: Any) -> Any:
        """Return the cross-entropy (nats) of each example: float32 [b]."""
        return self.ops.class_losses(outputs, labels)

    def scores(self, outputs: Any, labels: Any, mixed: Mixed | None = None) -> Any:
        """Return 1 where the class with the greater share was predicted, else 0: float32 [b]."""
        if mixed is not None:
            labels = self.ops.where(mixed.own_share >= 0.5, labels, mixed.labels)
        right = self.ops.argmax(outputs) == self.ops.cast(labels, "int64")
        return self.ops.cast(right, "float32")

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Return ``predicted`` int64 [b], a class, and ``probabilities`` float32 [b, C]."""
        return {"predicted": self.ops.argmax(outputs), "probabilities": self.ops.softmax(outputs)}

    def served(self, outputs: Any) -> dict[str, Any]:
        """Return ``probabilities`` float32 [b, C] and ``label`` int64 [b]."""
        probabilities = self.ops.softmax(outputs)
        return {"probabilities": probabilities, "label": self.ops.argmax(probabilities)}

    def form_measure(self) -> ClassMeasure:
        """Return how exported forms are compared with the model."""
        return ClassMeasure()


def _named(names: list[str], indices: npt.NDArray[Any]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(indices.astype(np.int32), pa.array(names, pa.string()))
