"""The page of a run, drawn again from its files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shardmill import open_dataset
from shardmill.infra.errors import DataError
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.config import TrainConfig
from shardmill.training.results.predictions.file import PredictionsWriter
from shardmill.training.results.report.drawing import draw_run_report
from shardmill.training.results.run_files.environment import describe_environment
from shardmill.training.results.run_files.history import HistoryFiles, read_history
from shardmill.training.results.run_files.run_folder import open_run
from tests.samples.datasets.published import coloured, publish

HISTORY = [
    {"epoch": epoch, "step": 5 * epoch, "train": {"loss": 1 / epoch, "accuracy": 0.5}} for epoch in (1, 2)
]
HISTORY[1]["validation"] = {"loss": 0.7, "accuracy": 0.6, "macro_f1": 0.5}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A dataset and the folder of an unfinished run on it."""
    counts = {"train": {"a": 6, "b": 6}, "validation": {"a": 2, "b": 2}}
    version = publish(tmp_path / "datasets", coloured(counts), name="set")
    folder = tmp_path / "runs" / "set-v1-0123456789"
    folder.mkdir(parents=True)
    config = TrainConfig()
    identity = {"dataset": "set@1", "config": config.model_dump(mode="json")}
    (folder / "run.json").write_text(json.dumps(identity))
    (folder / "environment.json").write_text(json.dumps(describe_environment(config, version, ["CPU"])))
    return tmp_path


def drawn(root: Path) -> str:
    path = draw_run_report(open_run("set-v1-0123456789", root / "runs"), root / "datasets")
    return path.read_text(encoding="utf-8")


def test_the_page_of_an_unfinished_run_has_its_curves_so_far(root: Path) -> None:
    HistoryFiles(Storage.at(root / "runs" / "set-v1-0123456789")).write(HISTORY)
    text = drawn(root)
    assert "the run is unfinished: 2 of 12 epochs are done" in text
    assert "2 epochs, 10 steps of 64 examples" in text
    assert text.count('<circle class="curve-train"') == 4, "loss and accuracy of two epochs"
    assert "before the run was finished" in text


def test_a_run_without_an_epoch_has_a_page_without_curves(root: Path) -> None:
    assert 'id="curves"' not in drawn(root)


def test_splits_that_were_evaluated_later_are_shown_but_no_label_errors_of_train(root: Path) -> None:
    folder = root / "runs" / "set-v1-0123456789"
    dataset = open_dataset("set", root=root / "datasets")
    table = dataset.table("train")
    wrong = 1 - table.label
    probabilities = np.where(np.arange(2) == wrong[:, None], 0.9, 0.1).astype(np.float32)
    losses = np.full(len(table), 2.3, np.float32)
    rows = {"losses": losses, "predicted": wrong, "probabilities": probabilities}
    with PredictionsWriter(Storage.at(folder), dataset.version, table) as writer:
        writer.add(np.arange(len(table)), table.label, rows)
    text = drawn(root)
    assert 'id="train"' in text
    assert text.count("taken for <b>") == 12
    assert text.count("data:image/jpeg") == 12
    assert 'id="label-errors"' not in text
    (root / "datasets" / "set").rename(root / "gone")
    text = drawn(root)
    assert "examples are shown without pictures" in text
    assert text.count("no picture") == 12


def test_a_run_that_has_not_begun_has_nothing_to_show(root: Path) -> None:
    (root / "runs" / "set-v1-0123456789" / "environment.json").unlink()
    with pytest.raises(DataError, match="nothing to show: it has no environment"):
        drawn(root)


def test_the_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_history(tmp_path) == []
    HistoryFiles(Storage.at(tmp_path)).write(HISTORY)
    assert read_history(tmp_path) == HISTORY
