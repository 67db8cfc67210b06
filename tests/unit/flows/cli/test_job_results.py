"""The output of the commands that run jobs. The flow is replaced by its result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardmill.flows import cli
from shardmill.flows.cli.runs import flow_runs
from tests.samples.datasets.published import coloured, publish

TRAINED = {
    "model": "small_unet", "dataset": "street", "version": 2, "epochs": 2, "num_replicas": 1,
    "unchanged": False, "metrics": {"validation": {"mean_iou": 0.3614, "loss": 1.5}}, "notes": [],
    "images_per_second": 9.0, "input_wait_fraction": 0.1, "export_dir": "/e", "tensorboard_dir": "/t",
}  # fmt: skip
PREPARED = {
    "dataset": "street", "version": 2, "unchanged": True, "source": "/s", "num_inputs": 1, "num_records": 1,
    "num_duplicates": 0, "num_filtered": 0, "num_quarantined": 0, "quarantine": {}, "num_label_conflicts": 0,
    "num_cross_split_duplicates": 0, "near_duplicates": None, "leaks": {}, "splits": {}, "report": None,
    "parent": None, "num_encoded": 0, "inherited_shards": 0,
}  # fmt: skip


def said(
    result: dict[str, Any],
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[str]:
    """Return the lines that a command prints about a result."""
    monkeypatch.setattr(flow_runs, "run_flow", lambda *_, **__: result)
    assert cli.run(arguments) == 0
    return capsys.readouterr().out.splitlines()


def test_the_summary_of_a_training_has_a_line_for_each_fact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(tmp_path, coloured({"train": {"a": 1}}), name="street")
    lines = said(TRAINED, ["train", "street", "--root", str(tmp_path)], monkeypatch, capsys)
    assert lines[:2] == [
        "trained small_unet on street@2 for 2 epochs",
        "  validation mean IoU 36.14%, loss 1.5000",
    ]


@pytest.mark.parametrize(("kind", "is_trainable"), [("class", True), ("none", False)])
def test_training_is_proposed_where_there_are_labels(
    kind: str, is_trainable: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["prepare", ".", "--dataset", "street"]
    lines = said(PREPARED | {"label_kind": kind}, arguments, monkeypatch, capsys)
    assert "Look at: shardmill show street@2" in lines
    assert ("Train:   shardmill train street@2" in lines) == is_trainable
