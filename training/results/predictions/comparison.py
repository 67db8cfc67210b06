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
import pyarrow as pa

from infra.errors import DataError
from training.arrays import Floats
from training.results.metrics.tally import Rows
from training.results.predictions.file import columns_of, read_all, read_classes
from training.results.predictions.resampling import COMPARED, ResampledFigures, resampled_figures

RESAMPLES = 2000
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
        only_first, only_second: records that only the first, or only the second, predicted rightly; of
            numbers those that it predicted more closely.
        figures: those of the task, by name; ``loss`` is the last.
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
    """Predictions of one model, sorted by id: bytes [N], labels and rows of the task, right bool [N]."""

    ids: npt.NDArray[np.bytes_]
    labels: Any
    rows: Rows
    right: npt.NDArray[np.bool_]


def compare(first: Path, second: Path) -> Comparison:
    """Compare two files of predictions.

    Raises:
        DataError: they are of different tasks, records or classes, or of a task whose runs are not compared.
        CorruptDataError: one is damaged.
    """
    task = columns_of(first).task
    if columns_of(second).task != task:
        raise DataError(f"the first run learned {task}, the second {columns_of(second).task}")
    if task not in COMPARED:
        raise DataError(f"runs that learned {task} cannot be compared")
    names, others = read_classes(first), read_classes(second)
    if names != others:
        raise DataError(
            f"the runs have different classes: {_differing(set(names), set(others))}",
            "compare runs on versions with the same classes",
        )
    one, other = _read(first, names), _read(second, names)
    _check_same_records(one, other)
    a, b = (resampled_figures(task, each.labels, each.rows, len(names)) for each in (one, other))
    whole = np.ones(one.ids.size, np.int64)
    found, also = a.of(whole), b.of(whole)
    drawn = list(_resampled(a, b, one.ids.size))
    figures = {
        name: _difference(found[name], also[name], np.array([value[name] for value in drawn]))
        for name in found
    }
    if task == "regression":
        closer = one.rows["losses"] < other.rows["losses"], other.rows["losses"] < one.rows["losses"]
    else:
        closer = one.right & ~other.right, ~one.right & other.right
    return Comparison(one.ids.size, int(closer[0].sum()), int(closer[1].sum()), figures)


def _resampled(a: ResampledFigures, b: ResampledFigures, size: int) -> Iterator[dict[str, float]]:
    """Yield the differences of the figures in each resample of ``size`` records."""
    random = np.random.default_rng(_SEED)
    for _ in range(RESAMPLES):
        times = np.bincount(random.integers(0, size, size), minlength=size)
        first, second = a.of(times), b.of(times)
        yield {name: second[name] - first[name] for name in first}


def _difference(first: float, second: float, differences: Floats) -> Difference:
    low, high = np.quantile(differences, [0.025, 0.975]).tolist()
    return Difference(first, second, low, high, float((differences > 0).mean()))


def _read(path: Path, names: list[str]) -> _Predictions:
    columns = columns_of(path)
    table = read_all(path, ["id", "loss", *COMPARED[columns.task]])
    ids = np.array(table["id"].to_pylist(), "S16")
    by_id = np.argsort(ids)
    labels, rows = columns.read(names, table.take(pa.array(by_id)))
    return _Predictions(ids[by_id], labels, rows, ~columns.wrong(labels, rows))


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
    changed = int((one.labels != other.labels).reshape(one.ids.size, -1).any(axis=1).sum())
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
