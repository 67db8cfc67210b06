"""Training by supervised processes, one a rank, equals training on one device, whatever happens to a rank."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from shardmill.training.results.run_files.curve import read_curve
from tests.samples.datasets.published import coloured, publish
from tests.samples.ranks.supervised import assert_same_training, signal_rank_after
from tests.samples.training.trainer import Trainer, settings, train

# 50 records by 8 leave a padded step; 13 examples of validation leave a padded batch.
COUNTS = {"train": {"a": 30, "b": 15, "c": 5}, "validation": {"a": 6, "b": 4, "c": 3}}
CONFIG = settings(
    optimizer={"name": "sgd", "learning_rate": 0.05},
    model={"dropout": 0.0},
    run={
        "epochs": 3,
        "log_every_steps": 1,
        "checkpoint_every_steps": 3,
        "trace_records": True,
        "deterministic": True,
    },
)


def by_ranks(workers: str, **ranks: Any) -> dict[str, Any]:
    """The same by several ranks."""
    return {**CONFIG, "ranks": {"workers": workers, **ranks}}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A root with a dataset and a run on one device, and the run's result."""
    root = tmp_path_factory.mktemp("alone")
    publish(root / "datasets", coloured(COUNTS), name="colours")
    return root, train(root, "colours", CONFIG)


def beside(alone: tuple[Path, dict[str, Any]], root: Path) -> dict[str, Any]:
    """Copy the dataset to ``root``; the result of the run on one device."""
    shutil.copytree(alone[0] / "datasets", root / "datasets")
    return alone[1]


@pytest.mark.slow
def test_two_unequal_ranks_of_which_one_is_killed_equal_one_device(
    alone: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    expected = beside(alone, tmp_path)
    trainer = Trainer(tmp_path, "colours", by_ranks("2", shares=[3, 1]))
    signal_rank_after(trainer, 9, 1, signal.SIGKILL)
    status, out, err = trainer.finish()
    assert status == 0, err
    result = json.loads(out.splitlines()[-1])
    assert result["num_replicas"] == 2
    assert_same_training(result, expected)
    assert result["metrics"]["validation"]["num_examples"] == 13
    (restart,) = result["restarts"]
    assert (restart["rank"], restart["reason"]) == (1, "signal")
    assert "SIGKILL" in restart["message"]
    assert restart["step"] >= 9
    assert [row["rows"] for row in result["rank_balance"]["ranks"]] == [6, 2]
    logs = Path(result["run_dir"]) / "logs" / "ranks"
    names = {"rank-0.log", "rank-1.log", "restarts.jsonl", "balance.jsonl"}
    assert {path.name for path in logs.iterdir()} == names
    points = read_curve(Path(result["run_dir"]))
    steps = [point["step"] for point in points if point.get("split") == "train"]
    assert steps == list(range(1, 22)), "the curve goes on after the restart, and begins at the beginning"
    for rank, share in ((0, 0.75), (1, 0.25)):
        own = [point for point in points if point.get("rank") == rank]
        assert own[-1]["step"] == 21
        assert {point["share"] for point in own} == {share}
        assert all(point["step_seconds"] > 0 < point["memory_process_bytes"] for point in own)


@pytest.mark.slow
def test_ranks_that_are_stopped_and_preempted_go_on_with_another_number(
    alone: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    expected = beside(alone, tmp_path)
    trainer = Trainer(tmp_path, "colours", by_ranks("2"))
    signal_rank_after(trainer, 5, 0, signal.SIGSTOP)
    signal_rank_after(trainer, 5, 1, signal.SIGTERM)
    status, _, err = trainer.finish()
    assert status == 75, err
    assert "remedy: run the same command again" in err
    result = train(tmp_path, "colours", by_ranks("1"))
    assert [(row["rank"], row["reason"]) for row in result["restarts"]] == [(0, "stopped")]
    assert_same_training(result, expected)


@pytest.mark.slow
def test_ranks_that_become_fewer_and_again_more_equal_one_device(
    alone: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    expected = beside(alone, tmp_path)
    steps = []
    for workers in ("2", "1"):
        trainer = Trainer(tmp_path, "colours", by_ranks(workers))
        steps.append(preempted_after(trainer, 5))
    result = train(tmp_path, "colours", by_ranks("2"))
    assert 0 < steps[0] < steps[1] < result["steps"]
    assert (result["num_replicas"], result["restarts"]) == (2, [])
    assert_same_training(result, expected)


def preempted_after(trainer: Trainer, steps: int) -> int:
    """Preempt a training after so many more steps; the number of steps that the run then has."""
    last = seen = 0
    for event in trainer.events():
        if event["event"] == "metrics" and event["split"] == "train":
            seen, last = seen + 1, event["step"]
            if seen == steps:
                trainer.process.send_signal(signal.SIGTERM)
    status, _, err = trainer.finish()
    assert status == 75, err
    return last
