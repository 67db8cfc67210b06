"""Jobs for launchers that write files for an outer system."""

from __future__ import annotations

from typing import Any

from shardmill.training.ranks.devices import RankCount
from shardmill.training.ranks.launchers.outer import OuterJob


def outer_job(**changed: Any) -> OuterJob:
    """A training of two ranks on CPUs, with some values changed."""
    values: dict[str, Any] = {
        "name": "photos-v3-0123456789",
        "dataset": "photos@3",
        "root": "/shared/datasets",
        "runs": "/shared/runs",
        "config_json": '{"run": {"epochs": 2}}',
        "count": RankCount(2, 2),
        "on_cpu": True,
        "stop_timeout_seconds": 120.0,
        "preemption_signal": "SIGTERM",
        "max_restarts": 3,
    }
    return OuterJob(**{**values, **changed})
