"""``python -m shardmill.training.profile --torch`` measures each number of workers, without TensorFlow."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from shardmill.infra.errors import UsageError
from shardmill.infra.processes.children import run_child
from shardmill.training.config import TrainConfig
from shardmill.training.profile import profile_workers, summary_of_workers


def test_the_command_measures_each_number_of_workers(root: Path) -> None:
    settings = {
        "data": {"image_size": 16, "global_batch_size": 7, "balance": "uniform"},
        "augment": {"mixup": 0.2},
    }
    command = [sys.executable, "-m", "shardmill.training.profile", "set", "--root", str(root), "--torch"]
    child = run_child([*command, "--seconds", "0.05", "--config-json", json.dumps(settings)])
    child.raise_for_status()
    result = child.result
    assert result is not None
    numbers = [rate["num_workers"] for rate in result["workers"]]
    assert numbers[:2] == [0, 1]
    assert numbers[-1] <= result["num_cpus"]
    assert all(rate["images_per_second"] > 0 for rate in result["workers"])
    assert all(rate["first_batch_seconds"] > 0 for rate in result["workers"])
    assert result["proposal"]["num_workers"] in numbers[1:]
    assert (result["image_size"], result["batch_size"]) == (16, 7)
    with pytest.raises(UsageError, match="measures a loader alone"):
        run_child([*command, "--model"]).raise_for_status()


def test_an_order_by_block_is_measured_too(root: Path) -> None:
    config = TrainConfig.model_validate(
        {"data": {"image_size": 16, "global_batch_size": 6, "granularity": "block", "block_records": 4}}
    )
    result = profile_workers("set", config, root, seconds=0.05)
    lines = summary_of_workers(result).splitlines()
    assert lines[0].split() == ["num_workers", "images/s", "first", "batch,", "s"]
    assert len(lines) == len(result["workers"]) + 2
    assert lines[-1].startswith(f"proposal: num_workers={result['proposal']['num_workers']}: ")
