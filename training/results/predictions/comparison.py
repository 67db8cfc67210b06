"""Compare two models by a paired bootstrap over the records of the same split (Efron and Tibshirani 1993).

Each resample draws as many records as there are, with replacement, and takes the predictions of both models
on them. The interval holds the middle 95 % of the differences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from infra.errors import DataError
from training.arrays import Floats, Ints
from training.results.metrics.confusion import mean_where, precision_recall_f1
from training.results.predictions.file import has_one_label, read_classes, read_predictions

RESAMPLES = 2000
_COLUMNS = ["id", "label_index", "predicted_index", "loss"]
_SEED = 0  # the same comparison gives the same interval each time


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of two models.

    Attributes:
        first, second: its value for each model.
        low, high: the ends of the 95 % interval of second less first.
        share_above: share of the resamples in which the second value is greater.
    """

    first: float
    second: float
    low: float
    high: float
    share_above: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two models on the same records.

    Attributes:
        num_examples: the records.
        only_first, only_second: records that only the first, or only the second, predicted rightly.
        figures: ``accuracy``, ``macro_f1`` and ``loss``.
    """

    num_examples: int
    only_first: int
    only_second: int
    figures: dict[str, Difference]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison, JSON-able."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Predictions:
    """Predictions of one model, sorted by id: bytes, int64, int64 and float64 [N]."""

    ids: npt.NDArray[np.bytes_]
    labels: Ints
    predicted: Ints
    losses: Floats


def compare(first: Path, second: Path) -> Comparison:
    """Compare two files of predictions.

    Raises:
        DataError: they are of different records, or of different classes. CorruptDataError: one is damaged.
    """
    if not (has_one_label(first) and has_one_label(second)):
        raise DataError("only single-label classifiers can be compared")
    classes, others = read_classes(first), read_classes(second)
    if classes != others:
        raise DataError(
            f"the runs have different classes: {_differing(set(classes), set(others))}",
            "compare runs on versions with the same classes",
        )
    one, other = _read(first), _read(second)
    _check_same_records(one, other)
    values = list(_resampled(one, other, len(classes)))
    whole = np.arange(one.ids.size)
    a, b = _figures(one, whole, len(classes)), _figures(other, whole, len(classes))
    figures = {name: _difference(a[name], b[name], np.array([value[name] for value in values])) for name in a}
    right, also_right = one.predicted == one.labels, other.predicted == other.labels
    return Comparison(
        one.ids.size, int((right & ~also_right).sum()), int((~right & also_right).sum()), figures
    )


def _resampled(one: _Predictions, other: _Predictions, num_classes: int) -> Iterator[dict[str, float]]:
    """Yield the differences of the figures in each resample."""
    random = np.random.default_rng(_SEED)
    for _ in range(RESAMPLES):
        drawn = random.integers(0, one.ids.size, one.ids.size)
        a, b = _figures(one, drawn, num_classes), _figures(other, drawn, num_classes)
        yield {name: b[name] - a[name] for name in a}


def _figures(one: _Predictions, rows: Ints, num_classes: int) -> dict[str, float]:
    labels, predicted = one.labels[rows], one.predicted[rows]
    right = labels == predicted
    hits, support, taken = (
        np.bincount(values, minlength=num_classes) for values in (labels[right], labels, predicted)
    )
    f1 = precision_recall_f1(hits, support, taken)[2]
    return {
        "accuracy": float(right.mean()),
        "macro_f1": mean_where(f1, support),
        "loss": float(one.losses[rows].mean()),
    }


def _difference(first: float, second: float, differences: Floats) -> Difference:
    low, high = np.quantile(differences, [0.025, 0.975]).tolist()
    return Difference(first, second, low, high, float((differences > 0).mean()))


def _read(path: Path) -> _Predictions:
    parts = list(read_predictions(path, _COLUMNS))
    ids = np.concatenate([np.array(part["id"].to_pylist(), "S16") for part in parts] or [np.array([], "S16")])
    columns = [
        np.concatenate([part[name].to_numpy() for part in parts]) if parts else np.array([])
        for name in _COLUMNS[1:]
    ]
    by_id = np.argsort(ids)
    labels, predicted, losses = (column[by_id] for column in columns)
    return _Predictions(
        ids[by_id], labels.astype(np.int64), predicted.astype(np.int64), losses.astype(np.float64)
    )


def _check_same_records(one: _Predictions, other: _Predictions) -> None:
    if not np.array_equal(one.ids, other.ids):
        shared = np.intersect1d(one.ids, other.ids).size
        raise DataError(
            f"the runs were evaluated on different records: {one.ids.size:,} and {other.ids.size:,}, "
            f"{shared:,} of them the same",
            "evaluate both on one version: shardmill evaluate RUN --dataset NAME@VERSION",
        )
    if not one.ids.size:
        raise DataError("the runs have no predictions of this split")
    changed = int((one.labels != other.labels).sum())
    if changed:
        raise DataError(
            f"{changed:,} of {one.ids.size:,} records have another label in the second run",
            "evaluate both on one version: shardmill evaluate RUN --dataset NAME@VERSION",
        )


def _differing(first: set[str], second: set[str]) -> str:
    only = [
        f"only the {number} has {', '.join(sorted(names)[:5])}"
        for number, names in (("first", first - second), ("second", second - first))
        if names
    ]
    return "; ".join(only) or "their order differs"
