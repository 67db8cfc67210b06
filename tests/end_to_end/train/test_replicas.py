"""Two devices train as one does: logical CPU devices stand in for GPUs, a process for each strategy."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.samples.datasets.published import coloured, publish
from tests.samples.ranks.supervised import consumed_by, relative_distance
from tests.samples.training.rounding import near
from tests.samples.training.trainer import Trainer, settings, train

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


@pytest.mark.slow
def test_two_replicas_take_over_from_one_and_end_as_one_would(tmp_path: Path) -> None:
    """The number of devices is no part of a run's identity; 50 records by 8 leave a padded step."""
    expected = in_a_folder_of_its_own(tmp_path / "one", CONFIG)
    publish(tmp_path / "changed" / "datasets", coloured(COUNTS), name="colours")
    begun = Trainer(tmp_path / "changed", "colours", CONFIG)
    assert begun.signal_after(4, signal.SIGTERM)
    assert begun.finish()[0] == 75
    changed = train(tmp_path / "changed", "colours", on_two(CONFIG))
    assert (expected["num_replicas"], changed["num_replicas"]) == (1, 2)
    assert_equal(changed, expected)


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIG, MIXED], ids=["plain", "mixed"])
def test_two_replicas_equal_one(tmp_path: Path, config: dict[str, Any]) -> None:
    """The same records in the same steps, the same weights."""
    expected = in_a_folder_of_its_own(tmp_path / "one", config)
    assert_equal(in_a_folder_of_its_own(tmp_path / "two", on_two(config)), expected)


def in_a_folder_of_its_own(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """The result of a training there."""
    publish(folder / "datasets", coloured(COUNTS), name="colours")
    return train(folder, "colours", config)


def assert_equal(result: dict[str, Any], expected: dict[str, Any]) -> None:
    """The same records in the same steps, the same weights, and the same loss."""
    assert consumed_by(result) == consumed_by(expected)
    assert relative_distance(result, expected) <= 1e-4
    for row, wanted in zip(result["history"], expected["history"], strict=True):
        assert row["train"]["loss"] == near(wanted["train"]["loss"], 1e-3)


def test_a_batch_that_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    publish(tmp_path / "datasets", coloured(COUNTS), name="colours")
    config = {**on_two(CONFIG), "data": {**CONFIG["data"], "global_batch_size": 7}}
    status, _, err = Trainer(tmp_path, "colours", config).finish()
    assert status == 2
    assert "error: data.global_batch_size = 7 cannot be divided among 2 devices" in err
    assert "remedy: set it to 6 or 8" in err
