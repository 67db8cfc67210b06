"""Magnitude pruning with PyTorch: the zeros of each checkpoint, and that they survive an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill import Dataset
from shardmill.infra.errors import Cancelled
from shardmill.training.run.session import train
from tests.samples.training.torch_runs import Interrupting, settings, weights

# Six steps an epoch: pruned from step 0 to 9, every fourth step and at the end.
PRUNED = (
    "optimizer.pruning.final_sparsity=0.5", "optimizer.pruning.end_epochs=1.5",
    "optimizer.pruning.every_steps=4", "run.keep_checkpoints=100", "optimizer.name=sgd",
)  # fmt: skip


def state_at(run_dir: Path, step: int) -> dict[str, Any]:
    """The arrays of a checkpoint, by name without number."""
    with np.load(run_dir / "checkpoints" / f"step-{step:09d}.npz") as archive:
        return {name[6:]: archive[name] for name in archive.files if name != "progress"}


def test_the_smallest_weights_become_zero_and_stay_so(dataset: Dataset, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    result = train(settings(*PRUNED), dataset.version, whole)
    masks = [name.removeprefix("keep.") for name in state_at(whole, 1) if name.startswith("keep.")]
    assert masks
    assert all(name.endswith("weight") for name in masks), "biases are left alone"
    for step in range(1, 13):
        chosen = 9 if step >= 9 else step - step % 4
        share = 0.5 * (1 - (1 - chosen / 9) ** 3)
        arrays = state_at(whole, step)
        for name in masks:
            assert (arrays[name] == 0).sum() == round(share * arrays[name].size), (step, name)
    before, after = state_at(whole, 3), state_at(whole, 4)
    largest_pruned = max(np.abs(before[name][after[name] == 0]).max() for name in masks)
    assert largest_pruned < max(np.abs(before[name]).max() for name in masks)
    assert any(note.startswith("pruned: 50.") for note in result["notes"])
    assert result["best"]["epoch"] == 2, "a model that is not pruned to the end is not the best"

    with pytest.raises(Cancelled):
        train(settings(*PRUNED), dataset.version, broken, None, Interrupting(6))  # type: ignore[arg-type]
    train(settings(*PRUNED), dataset.version, broken)
    left, right = weights(whole), weights(broken)
    assert all(np.array_equal(left[name], right[name]) for name in left)
