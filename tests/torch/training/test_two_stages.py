"""Fine-tuning in two stages of one run with PyTorch: the classifier alone, then everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shardmill import Dataset
from shardmill.infra.errors import Cancelled
from shardmill.training.config import TrainConfig
from shardmill.training.run.session import train
from shardmill.training.torch.group import TorchRanks
from shardmill.training.torch.parts import build_parts
from tests.samples.training.torch_runs import Interrupting, settings

TWO_STAGES = (
    "model.warm_head_epochs=1", "optimizer.head_learning_rate=0.05", "optimizer.first_layer_factor=0.5",
    "optimizer.schedule=constant", "optimizer.warmup_steps=0", "run.keep_checkpoints=100",
)  # fmt: skip


def states(run_dir: Path) -> dict[int, dict[str, np.ndarray]]:
    """The arrays of each checkpoint, by step."""
    found = {}
    for path in (run_dir / "checkpoints").glob("step-*.npz"):
        with np.load(path) as archive:
            found[int(path.stem[5:])] = {name: archive[name] for name in archive.files if name != "progress"}
    return found


def changed(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> set[str]:
    """The weights of the model that differ."""
    names = {name for name, value in after.items() if not np.array_equal(before[name], value)}
    return {name.split(":", 1)[-1] for name in names if "optimizer" not in name}


@pytest.fixture(scope="module")
def unbroken(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, np.ndarray]]:
    run_dir = tmp_path_factory.mktemp("unbroken")
    train(settings(*TWO_STAGES), dataset.version, run_dir)
    return states(run_dir)


def test_the_classifier_learns_alone_in_the_first_stage(unbroken: dict[int, dict[str, np.ndarray]]) -> None:
    first, middle, last = min(unbroken), max(unbroken) // 2, max(unbroken)
    alone = changed(unbroken[first], unbroken[middle])
    assert len(alone) == 2, alone  # weight and bias of the last layer
    assert changed(unbroken[middle], unbroken[last]) > alone


@pytest.mark.parametrize("stop_at", [2, 6, 8])
def test_an_interrupted_run_equals_an_unbroken_one(
    unbroken: dict[int, dict[str, np.ndarray]], dataset: Dataset, tmp_path: Path, stop_at: int
) -> None:
    """Stopped in the middle of either stage, and between them."""
    with pytest.raises(Cancelled):
        train(settings(*TWO_STAGES), dataset.version, tmp_path, None, Interrupting(stop_at))  # type: ignore[arg-type]
    train(settings(*TWO_STAGES), dataset.version, tmp_path)
    found, wanted = states(tmp_path)[max(unbroken)], unbroken[max(unbroken)]
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


def parts_of(config: TrainConfig, dataset: Dataset) -> Any:
    return build_parts(config, dataset.version, 3, TorchRanks(0, 1, torch.device("cpu")), torch.device("cpu"))


def test_each_stage_has_its_rate(dataset: Dataset) -> None:
    parts = parts_of(settings(*TWO_STAGES), dataset)
    assert [parts.stages.rate_at(step) for step in range(6)] == pytest.approx([0.05] * 3 + [0.01] * 3)
    assert all(weight.requires_grad for weight in parts.model.parameters()), "the model is as it was"
