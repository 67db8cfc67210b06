"""Evaluate a finished model on splits: figures, predictions, pictures, label errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shardmill.infra import progress as events
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.arrays import Ints
from shardmill.training.metrics.evaluation import Evaluation
from shardmill.training.reading import RecordReader
from shardmill.training.results.pictures.classification import class_pictures
from shardmill.training.results.predictions.file import (
    LEFT_OUT_FILE,
    PredictionsWriter,
    has_one_label,
    predictions_file,
)
from shardmill.training.results.predictions.label_errors import (
    LABEL_ERRORS_FILE,
    OUT_OF_SAMPLE,
    find_label_errors,
)
from shardmill.training.run.framework import Evaluator


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
        Split -> its figures, JSON-able.
    """
    folder = Storage.at(run_dir)
    results = {}
    for reader in readers:
        split, names = reader.table.split, reader.split.version.manifest.label_names
        evaluation = _evaluated(evaluator, reader, folder, check)
        found = results[split] = evaluation.to_result(names)
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
    evaluation = _evaluated(evaluator, reader, Storage.at(run_dir), check, records)
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
) -> Evaluation:
    """Evaluate a model on a split, or on some of its records, and write the predictions."""
    table, name = reader.table, None if records is None else LEFT_OUT_FILE
    what = f"evaluate {table.split if records is None else 'the left-out fold'}"
    total = len(table) if records is None else records.size
    events.stage(what, total)

    def on_batch(done: int) -> None:
        events.progress(what, done, total)
        check()

    with PredictionsWriter(folder, reader.split.version, table, name, evaluator.task.kind) as predictions:
        return evaluator.evaluate(reader, on_batch, predictions.add, records)


def write_label_errors(run_dir: Path) -> dict[str, Any] | None:
    """Write ``label-errors.csv`` from the out-of-sample predictions in ``run_dir``.

    Returns:
        The counts and the path, or why they are withheld, JSON-able; None if there is nothing to look at.
    """
    paths = {split: run_dir / predictions_file(split) for split in OUT_OF_SAMPLE}
    files = {split: path for split, path in paths.items() if path.is_file() and has_one_label(path)}
    found = find_label_errors(files)
    if found is None:
        return None
    found.write_csv(Storage.at(run_dir))
    return found.to_result(run_dir / LABEL_ERRORS_FILE)
