"""Schedules as tables: rates at chosen steps of a run of 100 steps, 10 an epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardmill.training.config import OptimizerSettings
from shardmill.training.schedules import Horizon, learning_rates


def rates(total: int = 100, **settings: Any) -> list[float]:
    """All rates of a run whose highest rate is 1."""
    checked = OptimizerSettings.model_validate({"learning_rate": 1.0, **settings})
    horizon = Horizon(total, 10, checked.rising_steps(total))
    return learning_rates(checked, horizon, np.arange(total)).tolist()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # The warm-up of ten steps is the same before all of them, except for one-cycle.
        ({"schedule": "cosine"}, {0: 0.1, 4: 0.5, 9: 1.0, 10: 1.0, 55: 0.5, 99: 0.00030459}),
        ({"schedule": "cosine", "final_factor": 0.1}, {9: 1.0, 10: 1.0, 55: 0.55, 99: 0.10027413}),
        ({"schedule": "constant"}, {0: 0.1, 9: 1.0, 10: 1.0, 99: 1.0}),
        ({"schedule": "constant", "warmup_steps": 0}, {0: 1.0, 99: 1.0}),
        ({"schedule": "constant", "warmup_steps": 4}, {0: 0.25, 3: 1.0, 4: 1.0}),
        (
            {"schedule": "step", "step_epochs": [2, 8], "step_factor": 0.5},
            {0: 0.1, 10: 1.0, 19: 1.0, 20: 0.5, 79: 0.5, 80: 0.25, 99: 0.25},
        ),
        (
            {"schedule": "one-cycle", "warmup_fraction": 0.3},
            {0: 0.04, 15: 0.52, 30: 1.0, 65: 0.50005, 99: 0.000603},
        ),
    ],
    ids=str,
)
def test_rates(settings: dict[str, Any], expected: dict[int, float]) -> None:
    found = rates(**settings)
    assert {step: found[step] for step in expected} == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("schedule", ["cosine", "one-cycle", "constant", "step"])
@pytest.mark.parametrize("total", [1, 2, 9, 1000])
def test_no_step_is_wasted_and_the_highest_rate_is_reached(schedule: str, total: int) -> None:
    more = {"step_epochs": [90]} if schedule == "step" else {}
    found = rates(total, schedule=schedule, warmup_fraction=0.9, **more)
    assert min(found) > 0
    assert max(found) == pytest.approx(1.0)
