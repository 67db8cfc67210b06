"""A rank that is slower than the others is measured, and takes fewer rows of each global batch."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from shardmill.training.results.run_files.rank_balance import read_balance
from tests.samples.datasets.published import coloured, publish
from tests.samples.ranks.supervised import assert_same_training, signal_rank_after
from tests.samples.training.trainer import Trainer, settings, train

COUNTS = {"train": {"a": 30, "b": 15, "c": 5}, "validation": {"a": 6, "b": 4, "c": 3}}
CONFIG = settings(
    optimizer={"name": "sgd", "learning_rate": 0.05},
    model={"name": "tests.samples.models.slow_rank_model", "dropout": 0.0},
    run={"epochs": 2, "log_every_steps": 1, "trace_records": True, "deterministic": True},
)


@pytest.mark.slow
def test_a_slow_rank_is_measured_once_and_gets_fewer_rows(tmp_path: Path) -> None:
    publish(tmp_path / "one" / "datasets", coloured(COUNTS), name="colours")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "datasets").symlink_to(tmp_path / "one" / "datasets")
    expected = train(tmp_path / "one", "colours", CONFIG)
    trainer = Trainer(
        tmp_path / "two", "colours", {**CONFIG, "ranks": {"workers": "2", "shares": "measured"}}
    )
    signal_rank_after(trainer, 8, 0, signal.SIGKILL)
    (path,) = (tmp_path / "two" / "runs").glob("*/logs/ranks/shares.json")
    kept = json.loads(path.read_bytes())
    assert kept["seconds_per_example"][1] > kept["seconds_per_example"][0]
    status, out, err = trainer.finish()
    assert status == 0, err
    assert json.loads(path.read_bytes()) == kept, "the ranks that were started again did not measure"
    result = json.loads(out.splitlines()[-1])
    assert_same_training(result, expected)
    fast, slow = read_balance(path.parents[2]).ranks
    assert fast.rows > slow.rows
    assert fast.rows + slow.rows == 8
    assert fast.examples + slow.examples == 50
    assert [sum(pair) for pair in zip(fast.class_counts, slow.class_counts, strict=True)] == [30, 15, 5]
    assert result["rank_balance"]["ranks"][1]["rows"] == slow.rows
