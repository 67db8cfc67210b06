"""Pages of training runs with made-up predictions; nothing is trained."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shardmill import Dataset, open_dataset
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.config import TrainConfig
from shardmill.training.metrics.regression import RegressionTally
from shardmill.training.metrics.single_label import SingleLabelTally
from shardmill.training.reading import RecordReader
from shardmill.training.results.predictions.file import PredictionsWriter, predictions_file
from shardmill.training.results.predictions.label_errors import find_label_errors
from shardmill.training.results.report.page import Fold, LabelErrorsPage, write_label_errors_page
from shardmill.training.results.report.writing import write_run_report
from shardmill.training.results.run_files.environment import describe_environment
from shardmill.training.tasks.registry import KINDS
from tests.samples.datasets.published import coloured, publish

SPLITS = ("validation", "test")


def reported_run(root: Path, names: Sequence[str], num_each: int, *, num_wrong: int) -> Path:
    """Write the page of a run that learned classes, and the page of its label errors.

    Args:
        root: an empty folder, for the dataset and the run.
        names: of the classes.
        num_each: examples of each class in validation and in test.
        num_wrong: examples of the test split that are predicted wrongly.

    Returns:
        The folder of the run.
    """
    dataset, folder = _empty_run(root, names, num_each)
    readers = {split: dataset.reader(split) for split in SPLITS}
    metrics = {
        split: _predict(folder, dataset, reader, num_wrong if split == "test" else 0)
        for split, reader in readers.items()
    }
    write_run_report(folder, _result(dataset, metrics), readers)
    errors = find_label_errors({"test": folder / predictions_file("test")})
    assert errors is not None
    folds = [Fold(f"{folder.name}-{name}", num_each, "90.0%") for name in names[:5]]
    page = LabelErrorsPage(dataset.version.ref, errors, [("accuracy", "90.0%")], "accuracy", folds)
    write_label_errors_page(Storage.at(folder), page, readers["test"])
    return folder


def reported_regression(root: Path, targets: Sequence[str], num_each: int) -> Path:
    """Write the page of a run that learned numbers, a target for each name; return the folder of the run."""
    dataset, folder = _empty_run(root, targets, num_each)
    reader = dataset.reader("test")
    chance, count = np.random.default_rng(0), len(reader.table)
    labels = chance.normal(1e6, 1e5, (count, len(targets))).astype(np.float32)
    rows = {"losses": labels[:, 0], "predicted": labels + chance.normal(0, 1e4, labels.shape)}
    with PredictionsWriter(
        Storage.at(folder), dataset.version, reader.table, kind=KINDS["regression"]
    ) as writer:
        writer.add(np.arange(count), labels, rows)
    tally = RegressionTally(len(targets))
    tally.add(labels, rows)
    result = _result(dataset, {"test": tally.evaluation().to_result(list(targets))})
    write_run_report(folder, {**result, "task": "regression"}, {"test": reader})
    return folder


def _empty_run(root: Path, names: Sequence[str], num_each: int) -> tuple[Dataset, Path]:
    counts = {split: dict.fromkeys(names, num_each) for split in SPLITS}
    publish(root, coloured({**counts, "train": {names[0]: 1}}), name="set")
    dataset, folder = open_dataset("set", root=root), root / "set-v1-0123456789"
    folder.mkdir()
    environment = describe_environment(TrainConfig(), dataset.version, ["/device:CPU:0"])
    (folder / "environment.json").write_text(json.dumps(environment))
    return dataset, folder


def _result(dataset: Dataset, metrics: dict[str, Any]) -> dict[str, Any]:
    figures = {"loss": 0.5, "accuracy": 0.8, "macro_f1": 0.7}
    history = [
        {"epoch": epoch, "step": epoch, "train": {"loss": 1 / epoch, "accuracy": 0.5}, "validation": figures}
        for epoch in (1, 2)
    ]
    for row in history:
        row["devices"] = {"gpu0_utilization": 0.875, "gpu0_memory_bytes": 3 << 30}
    return {
        "metrics": metrics, "classes": dataset.classes, "history": history, "model": "small_cnn",
        "dataset": "set", "version": 1, "epochs": 2, "steps": 2, "global_batch_size": 8, "image_size": 16,
        "num_parameters": 1234, "num_replicas": 1, "best": {"epoch": 2}, "notes": ["<b>a note</b>"],
        "images_per_second": 100.0, "input_wait_fraction": 0.1,
    }  # fmt: skip


def _predict(folder: Path, dataset: Dataset, reader: RecordReader, num_wrong: int) -> dict[str, Any]:
    """Write predictions, surer of later records and wrong for the last ones, and return the figures."""
    labels, num_classes = reader.table.label, len(dataset.classes)
    rows = np.arange(len(labels))
    is_wrong = rows >= len(rows) - num_wrong
    predicted = np.where(is_wrong, (labels + 1) % num_classes, labels)
    sure = np.linspace(0.5, 0.95, len(labels))
    probabilities = np.repeat(((1 - sure) / (num_classes - 1))[:, None], num_classes, axis=1)
    probabilities[rows, predicted] = sure
    probabilities = probabilities.astype(np.float32)
    losses = -np.log(probabilities[rows, labels])
    found = {"losses": losses, "predicted": predicted, "probabilities": probabilities}
    with PredictionsWriter(Storage.at(folder), dataset.version, reader.table) as writer:
        writer.add(rows, labels, found)
    tally = SingleLabelTally(num_classes)
    tally.add(labels, found)
    return tally.evaluation().to_result(dataset.classes)
