"""Train with several supervised ranks on this machine. Imports no TensorFlow: the ranks do."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infra.dataset.version import DatasetVersion
from training.config import TrainConfig
from training.ranks.supervision.silence import Limits
from training.ranks.supervision.slots import RankCount, Slots
from training.ranks.supervision.supervisor import RankPlan, Supervisor


def train_with_supervised_ranks(
    config: TrainConfig,
    version: DatasetVersion,
    root: str | Path,
    run_dir: Path,
    more_parts: Callable[[int], int | None],
) -> dict[str, Any]:
    """Train with ``ranks.workers`` processes. The caller holds the lock on ``run_dir``.

    Args:
        config: the configuration.
        version: the dataset version.
        root: the folder of the datasets.
        run_dir: the folder of the run.
        more_parts: see ``RankPlan``.

    Raises:
        ShardmillError: see ``Supervisor.run``.
    """
    settings = config.ranks
    slots = Slots(RankCount.parse(settings.workers or "1"), config.run.devices)
    limits = Limits(
        settings.start_timeout_seconds, settings.step_timeout_seconds, settings.stop_timeout_seconds
    )
    plan = RankPlan(
        command=_command(config, version, root, run_dir),
        log_folder=run_dir / "logs" / "ranks",
        limits=limits,
        max_restarts=settings.max_restarts,
        preemption_signals=(signal.SIGTERM, signal.Signals[config.run.preemption_signal]),
        slots=slots,
        more_parts=more_parts,
    )
    return Supervisor(plan).run()


def _command(config: TrainConfig, version: DatasetVersion, root: str | Path, run_dir: Path) -> list[str]:
    """Return the command of a rank. Its parent gives each rank the one device that it shall see."""
    own = config.model_copy(update={"run": config.run.model_copy(update={"devices": "one"})})
    return [
        *(sys.executable, "-m", "training.train_rank", version.ref),
        *("--root", str(root), "--run-dir", str(run_dir)),
        *("--config-json", own.model_dump_json()),
    ]
