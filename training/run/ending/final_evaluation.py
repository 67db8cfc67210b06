"""Evaluate a finished model on splits: figures, predictions, pictures, label errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra import progress as events
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.arrays import Ints
from shardmill.training.metrics.evaluation import Evaluation, Rows
from shardmill.training.reading import RecordReader
from shardmill.training.results.pictures.classification import class_pictures
from shardmill.training.results.predictions.file import (
    LEFT_OUT_FILE,
    PredictionsWriter,
    predictions_file,
)
from shardmill.training.results.predictions.label_errors import find_label_errors
from shardmill.training.results.predictions.label_errors.found import LABEL_ERRORS_FILE, OUT_OF_SAMPLE
from shardmill.training.run.framework import Evaluator
from shardmill.training.tasks.task import Task


def evaluate_splits(
    evaluator: Evaluator, readers: Sequence[RecordReader], run_dir: Path, check: Callable[[], None]
) -> dict[str, Any]:
    """Evaluate a model on splits.

    Each split leaves ``predictions-<split>.parquet`` in ``run_dir``; of a single-label classifier also
    ``confusion-<split>.svg`` and ``reliability-<split>.svg``.

    Args:
        evaluator: evaluates the model.
        readers: the records of each split.
        run_dir: the folder of the run.
        check: called after each batch; may raise.

    Returns:
        Split -> its figures, JSON-able; of several data sets also ``by_data_set``: reference -> figures.
    """
    folder = Storage.at(run_dir)
    results = {}
    for reader in readers:
        split, names = reader.table.split, reader.split.version.manifest.label_names
        evaluation, by_data_set = _evaluated(evaluator, reader, folder, check)
        found = results[split] = evaluation.to_result(names)
        if by_data_set:
            found["by_data_set"] = by_data_set
        events.metrics(split=split, final=True, **evaluation.figures())
        for name, picture in class_pictures(split, found, names).items():
            folder.write_atomic(f"{name}-{split}.svg", picture.encode("utf-8", "replace"))
    return results


def evaluate_left_out(
    evaluator: Evaluator, reader: RecordReader, records: Ints, run_dir: Path, check: Callable[[], None]
) -> dict[str, Any]:
    """Evaluate a model on the records of the train split that it has not learned from.

    Args:
        evaluator: evaluates the model.
        reader: the records of the train split.
        records: int64 [M], the ordinals of those that were left out, ascending.
        run_dir: the folder of the run, which gets ``predictions-left-out.parquet``.
        check: called after each batch; may raise.

    Returns:
        The figures and the path of the predictions, JSON-able.
    """
    evaluation, _ = _evaluated(evaluator, reader, Storage.at(run_dir), check, records)
    return {
        "metrics": evaluation.to_result(reader.split.version.manifest.label_names),
        "predictions": str(run_dir / LEFT_OUT_FILE),
    }


def _evaluated(
    evaluator: Evaluator,
    reader: RecordReader,
    folder: Storage,
    check: Callable[[], None],
    records: Ints | None = None,
) -> tuple[Evaluation, dict[str, Any]]:
    """Evaluate a model on a split, or on some of its records, and write the predictions.

    Return the figures, and those of each of several data sets.
    """
    table, name = reader.table, None if records is None else LEFT_OUT_FILE
    what = f"evaluate {table.split if records is None else 'the left-out fold'}"
    total = len(table) if records is None else records.size
    events.stage(what, total)

    def on_batch(done: int) -> None:
        events.progress(what, done, total)
        check()

    data_sets = _DataSets(evaluator.task, reader)
    with PredictionsWriter(folder, reader.split.version, table, name, evaluator.task.kind) as predictions:

        def sink(ordinals: Ints, labels: Any, rows: Rows) -> None:
            predictions.add(ordinals, labels, rows)
            data_sets.add(ordinals, labels, rows)

        return evaluator.evaluate(reader, on_batch, sink, records), data_sets.figures()


class _DataSets:
    """Sums up the predictions of each of several data sets by itself; of one alone nothing."""

    def __init__(self, task: Task, reader: RecordReader) -> None:
        self._table = reader.table
        self._refs = [one.ref for one in reader.split.version.data_sets]
        self._tallies = [task.tally() for _ in reader.table.set_sizes]

    def add(self, ordinals: Ints, labels: Any, rows: Rows) -> None:
        """Count n examples; see ``Sink``."""
        if not self._tallies:
            return
        numbers = self._table.data_set_of(ordinals)
        for number in np.unique(numbers).tolist():
            at = numbers == number
            own = _taken(labels, at) if isinstance(labels, dict) else labels[at]
            self._tallies[number].add(own, _taken(rows, at))

    def figures(self) -> dict[str, dict[str, float]]:
        """Return the figures of each data set that has examples, by its reference."""
        found = {ref: one.evaluation() for ref, one in zip(self._refs, self._tallies, strict=False)}
        return {
            ref: {**one.figures(), "num_examples": one.num_examples}
            for ref, one in found.items()
            if one.num_examples
        }


def _taken(columns: Mapping[str, Any], at: npt.NDArray[np.bool_]) -> dict[str, Any]:
    return {name: column[at] for name, column in columns.items()}


def write_label_errors(run_dir: Path) -> dict[str, Any] | None:
    """Write ``label-errors.csv`` from the out-of-sample predictions in ``run_dir``.

    Returns:
        The counts and the path, or why they are withheld, JSON-able; None if there is nothing to look at.
    """
    paths = {split: run_dir / predictions_file(split) for split in OUT_OF_SAMPLE}
    found = find_label_errors({split: path for split, path in paths.items() if path.is_file()})
    if found is None:
        return None
    found.write_csv(Storage.at(run_dir))
    return found.to_result(run_dir / LABEL_ERRORS_FILE)
