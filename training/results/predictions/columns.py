"""The columns of a file of predictions that depend on the task, one class a task."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from training.results.metrics.tally import Rows

_NUMBERS = pa.list_(pa.float32())


class PredictionColumns(Protocol):
    """The columns of a task, in addition to ``id``, ``source_uri`` and ``loss``.

    Attributes:
        task: the name of the task, in the metadata of the file.
        fields: name -> type of each column.
    """

    task: str
    fields: dict[str, pa.DataType]

    def arrays(self, names: list[str], labels: Any, rows: Rows) -> list[pa.Array]:
        """Return the columns of n examples, in the order of ``fields``.

        Args:
            names: of the classes or targets.
            labels: as the task needs them: an array [n, ...], or several by name.
            rows: the predictions of the task, each [n, ...].
        """


class SingleLabelColumns:
    """One class an example. Implements ``PredictionColumns``."""

    task = "single-label"
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


class MultiLabelColumns:
    """Any number of classes an example. Implements ``PredictionColumns``."""

    task = "multi-label"
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


class RegressionColumns:
    """Numbers. Implements ``PredictionColumns``."""

    task = "regression"
    fields = {  # noqa: RUF012  never changed
        "target": _NUMBERS,  # in its unit
        "predicted": _NUMBERS,
    }

    def arrays(self, names: list[str], labels: npt.NDArray[Any], rows: Rows) -> list[pa.Array]:
        """Return the columns of n examples: labels and ``predicted`` float [n, T]."""
        return [_lists(labels), _lists(rows["predicted"])]


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
