"""Predictions and pages of multi-label classifiers and regressions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from shardmill import Dataset, open_dataset
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.config import TrainConfig
from shardmill.training.metrics.multi_label import MultiLabelTally
from shardmill.training.metrics.regression import RegressionTally
from shardmill.training.results.predictions.comparison import compare
from shardmill.training.results.predictions.figures import figures_of
from shardmill.training.results.predictions.file import PredictionsWriter, kind_in
from shardmill.training.results.report.writing import write_run_report
from shardmill.training.results.run_files.environment import describe_environment
from shardmill.training.tasks.kind import TaskKind
from shardmill.training.tasks.registry import KINDS
from tests.samples.datasets.published import coloured, publish

SEVERAL = np.array([[1, 0], [1, 1], [0, 0], [0, 1]], np.float32)
NUMBERS = np.array([[1.0, 20.0], [2.0, 30.0], [3.0, 10.0], [4.0, 0.0]], np.float32)
LOSSES = np.array([0.1, 0.2, 0.3, 0.4], np.float32)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("datasets")
    publish(root, coloured({"test": {"a": 2, "b": 2}, "train": {"a": 1}}), name="set")
    return open_dataset("set", root=root)


def write(dataset: Dataset, folder: Path, kind: TaskKind, labels: Any, rows: Any) -> Path:
    reader = dataset.reader("test")
    with PredictionsWriter(
        Storage.at(folder), dataset.version, reader.table, kind=kind
    ) as writer:  # in two batches
        for part in (slice(0, 3), slice(3, 4)):
            of_part = {name: values[part] for name, values in rows.items()}
            writer.add(np.arange(4)[part], labels[part], of_part)
    return folder / "predictions-test.parquet"


def page(dataset: Dataset, folder: Path, tally: Any, labels: Any, rows: Any) -> str:
    tally.add(labels, rows)
    environment = describe_environment(TrainConfig(), dataset.version, ["CPU"])
    (folder / "environment.json").write_text(json.dumps(environment))
    result = {
        "metrics": {"test": tally.evaluation().to_result(dataset.classes)}, "classes": dataset.classes,
        "task": "regression" if isinstance(tally, RegressionTally) else "multi-label",
        "history": [], "model": "own", "dataset": "set", "version": 1, "epochs": 1, "steps": 1,
        "global_batch_size": 4, "num_parameters": None, "best": None, "notes": [],
    }  # fmt: skip
    path = write_run_report(folder, result, {"test": dataset.reader("test")})
    return path.read_text(encoding="utf-8")


def test_several_labels_an_example(dataset: Dataset, tmp_path: Path) -> None:
    probabilities = np.array([[0.9, 0.2], [0.8, 0.1], [0.3, 0.6], [0.2, 0.7]], np.float32)
    rows = {"losses": LOSSES, "predicted": probabilities > 0.5, "probabilities": probabilities}
    path = write(dataset, tmp_path, KINDS["multi-label"], SEVERAL, rows)
    table = pq.read_table(path)
    assert table["labels"].to_pylist() == [["a"], ["a", "b"], [], ["b"]]
    assert table["predicted"].to_pylist() == [["a"], ["a"], ["b"], ["b"]]
    assert np.allclose(table["probabilities"].to_pylist(), probabilities)
    assert kind_in(path) is KINDS["multi-label"]
    text = page(dataset, tmp_path, MultiLabelTally(2), SEVERAL, rows)
    assert "exact match" in text
    assert "By class" in text
    assert "taken for <b>a</b>" in text, "of the second, whose labels are a and b"
    assert "average precision" in text
    assert "confusion" not in text
    figures = figures_of(path)
    assert figures["exact_match"] == 0.5
    assert figures["per_class"]["a"]["support"] == 2
    found = compare(path, path)
    assert (found.only_first, found.only_second) == (0, 0)
    assert found.figures["exact_match"].first == found.figures["exact_match"].second == 0.5
    assert found.figures["mean_average_precision"].first == pytest.approx(figures["mean_average_precision"])
    assert found.figures["macro_f1"].first == pytest.approx(figures["macro_f1"])


def test_numbers(dataset: Dataset, tmp_path: Path) -> None:
    rows = {"losses": LOSSES, "predicted": NUMBERS + 1}
    table = pq.read_table(write(dataset, tmp_path, KINDS["regression"], NUMBERS, rows))
    assert table["target"].to_pylist() == NUMBERS.tolist()
    assert table["predicted"].to_pylist() == (NUMBERS + 1).tolist()
    assert table["loss"].to_pylist() == pytest.approx(LOSSES.tolist())
    text = page(dataset, tmp_path, RegressionTally(2), NUMBERS, rows)
    assert "By target" in text
    assert "By class" not in text
    assert "1.000" in text, "the absolute error of each target"
    assert "predicted less true" in text
    assert "largest losses" in text
    path = tmp_path / "predictions-test.parquet"
    figures = figures_of(path)
    assert figures["per_target"]["a"]["absolute_error"] == pytest.approx(1.0)
    found = compare(path, path)
    for name in ("r2", "absolute_error", "root_mean_square_error", "loss"):
        assert found.figures[name].first == pytest.approx(figures[name])
