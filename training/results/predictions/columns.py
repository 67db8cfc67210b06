"""The columns of a file of predictions that depend on the task: one class a task writes and reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.training.results.metrics.multi_label import MultiLabelTally
from shardmill.training.results.metrics.regression import RegressionTally
from shardmill.training.results.metrics.single_label import SingleLabelTally
from shardmill.training.results.metrics.tally import Rows, Tally
from shardmill.training.results.predictions.detection_columns import DetectionColumns
from shardmill.training.results.predictions.segmentation_columns import SegmentationColumns

_NUMBERS = pa.list_(pa.float32())
_ROWS_TOGETHER = 8192


class PredictionColumns(Protocol):
    """The columns of a task, in addition to ``id``, ``source_uri`` and ``loss``.

    Attributes:
        task: the name of the task, in the metadata of the file.
        fields: name -> type of each column.
        rows_together: rows that are decoded at a time.
    """

    task: str
    fields: dict[str, pa.DataType]
    rows_together: int

    def arrays(self, names: list[str], labels: Any, rows: Rows) -> list[pa.Array]:
        """Return the columns of n examples, in the order of ``fields``.

        Args:
            names: names of the classes or targets.
            labels: as the task needs them: an array [n, ...], or several by name.
            rows: the predictions of the task, each [n, ...].
        """

    def read(self, names: list[str], table: pa.Table) -> tuple[Any, Rows]:
        """Return labels and predictions again, as ``arrays`` took them, with ``losses``."""

    def wrong(self, labels: Any, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return which examples were not predicted rightly: bool [n]."""

    def label_words(self, names: Sequence[str], labels: Any, row: int) -> str:
        """Return the label of one of n examples for people."""

    def predicted_words(self, names: Sequence[str], rows: Rows, row: int) -> str:
        """Return what was predicted for one of n examples, for people."""

    def tally(self, num_names: int) -> Tally:
        """Return an empty tally, for so many classes or targets."""


class SingleLabelColumns:
    """One class an example. Implements ``PredictionColumns``."""

    task = "single-label"
    rows_together = _ROWS_TOGETHER
    fields = {  # noqa: RUF012  never changed
        "label": pa.dictionary(pa.int32(), pa.string()),  # name of the class
        "predicted": pa.dictionary(pa.int32(), pa.string()),
        "label_index": pa.int32(),
        "predicted_index": pa.int32(),
        "probabilities": _NUMBERS,  # of each class, by index
    }

    def arrays(self, names: list[str], labels: npt.NDArray[Any], rows: Rows) -> list[pa.Array]:
        """Return the columns of n examples: labels int [n], ``predicted`` [n], ``probabilities`` [n, C]."""
        predicted = rows["predicted"]
        return [
            _named(names, labels),
            _named(names, predicted),
            pa.array(labels.astype(np.int32)),
            pa.array(predicted.astype(np.int32)),
            _lists(rows["probabilities"]),
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

    def tally(self, num_names: int) -> SingleLabelTally:
        """Return an empty tally."""
        return SingleLabelTally(num_names)


class MultiLabelColumns:
    """Any number of classes an example. Implements ``PredictionColumns``."""

    task = "multi-label"
    rows_together = _ROWS_TOGETHER
    fields = {  # noqa: RUF012  never changed
        "labels": pa.list_(pa.string()),  # names of the classes
        "predicted": pa.list_(pa.string()),
        "probabilities": _NUMBERS,  # of each class by itself, by index
    }

    def arrays(self, names: list[str], labels: npt.NDArray[Any], rows: Rows) -> list[pa.Array]:
        """Return the columns of n examples: labels 0 or 1 [n, C], ``predicted`` bool [n, C]."""
        return [
            _chosen(names, labels > 0.5),
            _chosen(names, rows["predicted"]),
            _lists(rows["probabilities"]),
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

    def tally(self, num_names: int) -> MultiLabelTally:
        """Return an empty tally."""
        return MultiLabelTally(num_names)


class RegressionColumns:
    """Numbers. Implements ``PredictionColumns``."""

    task = "regression"
    rows_together = _ROWS_TOGETHER
    fields = {  # noqa: RUF012  never changed
        "target": _NUMBERS,  # in its unit
        "predicted": _NUMBERS,
    }

    def arrays(self, _names: list[str], labels: npt.NDArray[Any], rows: Rows) -> list[pa.Array]:
        """Return the columns of n examples: labels and ``predicted`` float [n, T]."""
        return [_lists(labels), _lists(rows["predicted"])]

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

    def tally(self, num_names: int) -> RegressionTally:
        """Return an empty tally."""
        return RegressionTally(num_names)


_ALL: Final[tuple[PredictionColumns, ...]] = (
    SingleLabelColumns(),
    MultiLabelColumns(),
    RegressionColumns(),
    DetectionColumns(),
    SegmentationColumns(),
)
COLUMNS: Final[Mapping[str, PredictionColumns]] = {columns.task: columns for columns in _ALL}


def numbers_of(column: pa.ChunkedArray) -> npt.NDArray[np.float32]:
    """Return lists of equal length as the rows of a matrix: float32 [n, k]."""
    lists = column.combine_chunks()
    values = lists.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(values.reshape(len(lists), -1 if len(lists) else 0), np.float32)


def _named(names: list[str], indices: npt.NDArray[Any]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(indices.astype(np.int32), pa.array(names, pa.string()))


def _lists(values: npt.NDArray[Any]) -> pa.ListArray:
    """Return the rows of a matrix as lists: float [n, k]."""
    offsets = np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]
    return pa.ListArray.from_arrays(offsets, values.astype(np.float32).ravel())


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
