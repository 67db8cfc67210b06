"""Magnitude pruning: the schedule, the zeros that it leaves, and that they survive an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.infra.errors import Cancelled, ConfigError
from shardmill.infra.settings import load_settings
from shardmill.training.config import TrainConfig
from shardmill.training.run.pruning import PruningSchedule
from tests.samples.datasets.published import coloured, publish
from tests.samples.training.sessions import StopAfter, last_state, trained

pytest.importorskip("tensorflow")

PRUNED = [
    "model.name=tests.samples.models.two_layers", "run.epochs=4", "optimizer.learning_rate=0.01",
    "optimizer.pruning.final_sparsity=0.5", "optimizer.pruning.end_epochs=3",
    "optimizer.pruning.every_steps=2", "run.accumulate_steps=2",
]  # fmt: skip


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 0.0), (10, 0.0), (20, 0.8 * (1 - 0.75**3)), (30, 0.8 * 0.875), (50, 0.8), (99, 0.8)],
)
def test_the_share_of_zeros_rises_as_a_cube(step: int, expected: float) -> None:
    assert PruningSchedule(10, 50, 1, 0.8).sparsity(step) == pytest.approx(expected)


def zeros(state: dict[str, Any]) -> dict[str, Any]:
    """The zero weights of each layer, by its name without number."""
    kinds = ("stem", "stem_bn", "logits")
    return {name[6:]: value == 0 for name, value in state.items() if name.split(":")[1] in kinds}


def test_the_smallest_weights_become_zero_and_stay_so(tmp_path: Path) -> None:
    """Three steps an epoch; interrupted between two choices, and between the last one and the end."""
    counts = {"train": {"a": 12, "b": 8}, "validation": {"a": 3, "b": 2}}
    version = publish(tmp_path / "sets", coloured(counts, size=(8, 8)), name="set")
    loop, _ = trained(version, tmp_path / "unbroken", *PRUNED)
    states = []
    for step in (5, 10):
        with pytest.raises(Cancelled):
            trained(version, tmp_path / "broken", *PRUNED, stop=StopAfter(step))
        states.append(zeros(last_state(tmp_path / "broken")))
    trained(version, tmp_path / "broken", *PRUNED)
    final = last_state(tmp_path / "broken")
    states.append(zeros(final))
    kernels = [name for name in states[0] if name.endswith("kernel")]
    assert kernels == ["stem:kernel", "logits:kernel"]
    wanted = 0.5 * (1 - (1 - 4 / 9) ** 3)  # that of step 4 of 9
    for name in kernels:
        size = states[0][name].size
        assert [int(state[name].sum()) for state in states] == [round(wanted * size), size // 2, size // 2]
        assert (states[0][name] <= states[1][name]).all()
        assert (states[1][name] == states[2][name]).all()
    assert not states[2]["stem_bn:gamma"].any()
    unbroken = last_state(tmp_path / "unbroken")
    assert all(np.array_equal(final[name], unbroken[name]) for name in unbroken)
    assert loop.progress.best["epoch"] >= 3, "a model that is not pruned to the end is not the best"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["optimizer.pruning.end_epochs=5"], "end_epochs = 5 is beyond run.epochs = 4"),
        (["optimizer.pruning.begin_epochs=3"], "is not above begin_epochs"),
        (["optimizer.ema_decay=0.9"], "exclude each other"),
    ],
)
def test_what_cannot_be_pruned_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_settings(TrainConfig, section="train", overrides=[*PRUNED, *overrides])
    with pytest.raises(ConfigError, match="without end_epochs"):
        load_settings(TrainConfig, section="train", overrides=["optimizer.pruning.final_sparsity=0.5"])
