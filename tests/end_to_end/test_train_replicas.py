"""Two devices train as one does: logical CPU devices stand in for GPUs, a process for each strategy."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.samples.published import coloured, publish
from tests.samples.trainer import Trainer, settings, train

COUNTS = {"train": {"a": 30, "b": 15, "c": 5}, "validation": {"a": 6, "b": 4, "c": 3}}
CONFIG = settings(
    optimizer={"name": "sgd", "learning_rate": 0.05},
    model={"dropout": 0.0},
    run={"epochs": 2, "log_every_steps": 1, "trace_records": True, "deterministic": True},
)
MIXED = {**CONFIG, "augment": {"mixup": 0.4, "cutmix": 1.0, "randaugment": {"num_ops": 1}}}


def on_two(config: dict[str, Any]) -> dict[str, Any]:
    """The same on two devices."""
    return {**config, "run": {**config["run"], "devices": "cpu:2"}}


def weights_of(run_dir: Path) -> dict[str, np.ndarray]:
    """The variables of model and optimizer in a run's last checkpoint."""
    with np.load(max((run_dir / "checkpoints").glob("step-*.npz"))) as archive:
        return {name: archive[name] for name in archive.files if name != "progress"}


@pytest.mark.parametrize(
    "config", [CONFIG, pytest.param(MIXED, marks=pytest.mark.slow)], ids=["plain", "mixed"]
)
def test_two_replicas_equal_one_and_may_take_over(tmp_path: Path, config: dict[str, Any]) -> None:
    """The same records in the same steps, the same weights; 50 records by 8 leave a padded step."""
    publish(tmp_path / "one" / "datasets", coloured(COUNTS), name="colours")
    shutil.copytree(tmp_path / "one" / "datasets", tmp_path / "two" / "datasets")
    shutil.copytree(tmp_path / "one" / "datasets", tmp_path / "changed" / "datasets")
    one = train(tmp_path / "one", "colours", config)
    two = train(tmp_path / "two", "colours", on_two(config))
    assert (one["num_replicas"], two["num_replicas"]) == (1, 2)
    trace = (Path(one["run_dir"]) / "consumed.jsonl").read_bytes()
    weights = weights_of(Path(one["run_dir"]))
    assert (Path(two["run_dir"]) / "consumed.jsonl").read_bytes() == trace
    assert weights
    for name, of_two in weights_of(Path(two["run_dir"])).items():
        assert of_two == pytest.approx(weights[name], abs=2e-4), name
    assert two["history"][0]["train"]["loss"] == pytest.approx(one["history"][0]["train"]["loss"], rel=1e-3)

    # One replica begins, two go on: the number of devices is no part of a run's identity.
    begun = Trainer(tmp_path / "changed", "colours", config)
    assert begun.signal_after(4, signal.SIGTERM)
    assert begun.finish()[0] == 75
    changed = train(tmp_path / "changed", "colours", on_two(config))
    assert changed["num_replicas"] == 2
    assert (Path(changed["run_dir"]) / "consumed.jsonl").read_bytes() == trace


def test_a_batch_that_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    publish(tmp_path / "datasets", coloured(COUNTS), name="colours")
    config = {**on_two(CONFIG), "data": {**CONFIG["data"], "global_batch_size": 7}}
    status, _, err = Trainer(tmp_path, "colours", config).finish()
    assert status == 2
    assert "error: data.global_batch_size = 7 cannot be divided among 2 devices" in err
    assert "remedy: set it to 6 or 8" in err
