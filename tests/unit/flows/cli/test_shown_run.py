"""``shardmill show``: the table of the ranks of a run, and its JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardmill.flows.cli import run
from shardmill.training.config import TrainConfig
from shardmill.training.results.run_files.rank_balance import BALANCE_FILE


def rank(number: int, input_seconds: float) -> dict[str, Any]:
    return {
        "rank": number, "device": "CPU, 1 threads", "rows": 4, "examples": 20, "class_counts": [10, 10],
        "num_steps": 20, "step_seconds": 0.1, "input_seconds": input_seconds, "compute_seconds": None,
    }  # fmt: skip


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with one run of two ranks."""
    path = tmp_path / "photos-v1-0" / BALANCE_FILE
    path.parent.mkdir(parents=True)
    line = {"epoch": 2, "classes": ["cat", "dog"], "ranks": [rank(0, 0.0), rank(1, 0.07)]}
    path.write_text(json.dumps(line) + "\n")
    identity = {"dataset": "photos@1", "config": TrainConfig().model_dump(mode="json")}
    (tmp_path / "photos-v1-0" / "run.json").write_text(json.dumps(identity))
    return tmp_path


def test_people_see_a_table_and_a_warning(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "photos-v1-0", "--runs", str(runs)]) == 0
    seen = capsys.readouterr()
    assert "ranks in epoch 2" in seen.out
    assert "not measured" in seen.out
    assert "warning: rank 1 waits 70% of each step for its data" in seen.err


def test_programs_get_json(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "photos-v1-0", "--runs", str(runs), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["share"] for row in found["ranks"]] == [0.5, 0.5]
    assert found["class_counts"] == {"cat": [10, 10], "dog": [10, 10]}


def test_a_run_without_ranks_is_shown_too(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "photos-v1-0" / BALANCE_FILE).unlink()
    assert run(["show", "photos-v1-0", "--runs", str(runs)]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[:4] == [
        "photos-v1-0:",
        "  dataset:  photos@1",
        "  model:    small_cnn",
        "  state:    unfinished",
    ]
    assert "ranks in epoch" not in said.out
    assert run(["show", "photos-v1-0", "--runs", str(runs), "--parser"]) == 2
    assert "photos-v1-0 is a training run" in capsys.readouterr().err
