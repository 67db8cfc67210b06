"""Compare two models by a paired bootstrap over the records of the same split (Efron and Tibshirani 1993).

Each resample draws as many records as there are, with replacement, and takes the predictions of both models
on them. The interval holds the middle 95 % of the differences, or the share that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.errors import DataError
from shardmill.infra.readable import counted
from shardmill.training.arrays import Floats, Ints
from shardmill.training.metrics.evaluation import Rows
from shardmill.training.results.predictions.file import (
    DATA_SET,
    kind_in,
    read_all,
    read_classes,
    read_predictions,
)
from shardmill.training.tasks.kind import TaskKind

RESAMPLES = 2000
CONFIDENCE = 0.95
_FiguresOf = Callable[[Ints], dict[str, float]]
_SEED = 0  # the same comparison gives the same interval each time


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of two models.

    Attributes:
        first, second: its value for each model.
        low, high: the ends of the interval of second less first.
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
            numbers and masks those that it predicted more closely, with the lower loss.
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


def compare(
    first: Path,
    second: Path,
    only: npt.NDArray[np.bytes_] | None = None,
    confidence: float = CONFIDENCE,
    *,
    data_set: str | None = None,
) -> Comparison:
    """Compare two files of predictions.

    Args:
        first: predictions of one model.
        second: predictions of the other.
        only: bytes [N], ids of the records that count; None: all.
        confidence: share of the differences that the interval holds.
        data_set: the reference of one of several, whose records count; None: those of all.

    Raises:
        DataError: they are of different tasks, records or classes, or of a model whose losses are not finite.
        CorruptDataError: one is damaged.
    """
    kind = kind_in(first)
    if kind_in(second) is not kind:
        raise DataError(f"the first run learned {kind.name}, the second {kind_in(second).name}")
    names, others = read_classes(first), read_classes(second)
    if names != others:
        raise DataError(
            f"the runs have different classes: {_differing(set(names), set(others))}",
            "compare runs on versions with the same classes",
        )
    one, other = (_read(kind, path, names, only, data_set) for path in (first, second))
    _check_same_sizes(one, other)
    _check_same_records(one, other)
    for path, each in ((first, one), (second, other)):
        _check_finite(path, each)
    a, b = (_figures_of(kind, each, len(names)) for each in (one, other))
    whole = np.ones(one.ids.size, np.int64)
    found, also = a(whole), b(whole)
    drawn = list(_resampled(a, b, one.ids.size))
    figures = {
        name: _difference(found[name], also[name], np.array([value[name] for value in drawn]), confidence)
        for name in found
    }
    if kind.is_exact:
        closer = one.right & ~other.right, ~one.right & other.right
    else:
        closer = one.rows["losses"] < other.rows["losses"], other.rows["losses"] < one.rows["losses"]
    return Comparison(one.ids.size, int(closer[0].sum()), int(closer[1].sum()), figures)


def _check_finite(path: Path, predictions: _Predictions) -> None:
    """Check the losses: the class at the largest of probabilities that are NaN is no prediction."""
    bad = int((~np.isfinite(predictions.rows.get("losses", 0.0))).sum())
    if bad:
        raise DataError(
            f"{path}: the losses of {counted(bad, 'record')} are not finite: its model had diverged, and is "
            "compared with none",
            "train again with a lower optimizer.learning_rate",
        )


def _figures_of(kind: TaskKind, predictions: _Predictions, num_names: int) -> _FiguresOf:
    """Return a function from how often each record counts to the figures by which models are compared."""
    evaluated = kind.resampled(predictions.labels, predictions.rows, num_names)

    def figures(times: Ints) -> dict[str, float]:
        found = evaluated(times).figures()
        return {name: found[name] for name in kind.figures}

    return figures


def _resampled(a: _FiguresOf, b: _FiguresOf, size: int) -> Iterator[dict[str, float]]:
    """Yield the differences of the figures in each resample of ``size`` records."""
    random = np.random.default_rng(_SEED)
    for _ in range(RESAMPLES):
        times = np.bincount(random.integers(0, size, size), minlength=size)
        first, second = a(times), b(times)
        yield {name: second[name] - first[name] for name in first}


def _difference(first: float, second: float, differences: Floats, confidence: float) -> Difference:
    tail = (1 - confidence) / 2
    low, high = np.quantile(differences, [tail, 1 - tail]).tolist()
    return Difference(first, second, low, high, float((differences > 0).mean()))


def _read(
    kind: TaskKind, path: Path, names: list[str], only: npt.NDArray[np.bytes_] | None, data_set: str | None
) -> _Predictions:
    wanted = ["id", DATA_SET, "loss", *kind.compared]
    if kind.summarizes:
        return _summarized(kind, path, names, wanted, only, data_set)
    table = _of_data_set(read_all(path, wanted), data_set)
    ids = np.array(table["id"].to_pylist(), "S16")
    by_id = np.argsort(ids, kind="stable")  # two data sets may have the same image
    if only is not None:
        by_id = by_id[np.isin(ids[by_id], only)]
    labels, rows = kind.read(names, table.take(pa.array(by_id)))
    return _Predictions(ids[by_id], labels, rows, ~kind.wrong(labels, rows))


def _of_data_set(rows: pa.Table, data_set: str | None) -> pa.Table:
    """Return the rows of one of several data sets, where the file says which they are of."""
    if data_set is None or DATA_SET not in rows.column_names:
        return rows
    return rows.filter(pc.equal(rows[DATA_SET], data_set))


def _summarized(
    kind: TaskKind,
    path: Path,
    names: list[str],
    wanted: list[str],
    only: npt.NDArray[np.bytes_] | None,
    data_set: str | None,
) -> _Predictions:
    """Read predictions in parts, and keep a summary of each record."""
    ids: list[str] = []
    labels, rights, parts = [], [], []
    for every in read_predictions(path, wanted):
        table = _of_data_set(every, data_set)
        of_part, rows = kind.read(names, table)
        ids += table["id"].to_pylist()
        rights.append(~kind.wrong(of_part, rows))
        comparable, summary = kind.summarized(of_part, rows, len(names))
        labels.append(comparable)
        parts.append(summary)
    all_ids = np.array(ids, "S16")
    if not parts:
        return _Predictions(all_ids, np.zeros(0, "S32"), {}, np.zeros(0, np.bool_))
    by_id = np.argsort(all_ids, kind="stable")
    if only is not None:
        by_id = by_id[np.isin(all_ids[by_id], only)]
    joined = {name: np.concatenate([part[name] for part in parts])[by_id] for name in parts[0]}
    return _Predictions(all_ids[by_id], np.concatenate(labels)[by_id], joined, np.concatenate(rights)[by_id])


def _check_same_sizes(one: _Predictions, other: _Predictions) -> None:
    sizes = [int(each.rows["sides"].max(initial=0)) for each in (one, other) if "sides" in each.rows]
    if len(set(sizes)) > 1:
        raise DataError(
            f"the first run predicted masks of {sizes[0]} pixels, the second of {sizes[1]}",
            "compare runs with the same data.image_size: pixels of other sizes are other questions",
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
    unknown = (one.labels != one.labels) & (other.labels != other.labels)  # NaN
    changed = int(((one.labels != other.labels) & ~unknown).reshape(one.ids.size, -1).any(axis=1).sum())
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
