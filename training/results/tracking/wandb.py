"""Tell Weights & Biases about a run."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import wandb

from shardmill.training.results.tracking.tracked import TrackedRun, Tracker

_SYSTEM = "wandb"


class WandbTracker(Tracker):
    """One run in Weights & Biases. Its variables say where, and whether offline."""

    name = "Weights & Biases"

    def __init__(self, run: TrackedRun) -> None:
        known = run.identity(_SYSTEM)
        number = uuid.uuid4().hex if known is None else known["run_id"]
        self._run = wandb.init(
            project=run.settings.experiment,
            name=run.name,
            id=number,
            resume="allow",
            dir=str(run.run_dir),
            config={
                **run.environment["config"],
                "dataset": run.dataset,
                "manifest_sha256": run.manifest_sha256,
            },
            # Our output is the events of the run; a client that waits for a server would hold it up.
            settings=wandb.Settings(console="off", silent=True, init_timeout=30.0),
        )
        run.remember(_SYSTEM, {"run_id": number})

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Log the figures of an epoch; their step is the epoch."""
        self._run.log(dict(row), step=int(row["epoch"]))

    def end(self, result: Mapping[str, Any]) -> None:
        """Put the figures of the best model into the summary, and where its files are."""
        summary: dict[str, Any] = {
            f"best_{split}_{name}": value
            for split, of_split in result["metrics"].items()
            for name, value in of_split.items()
            if isinstance(value, float)
        }
        summary |= {name: result[name] for name in ("run_dir", "export_dir", "report", "tensorboard_dir")}
        self._run.summary.update(summary)

    def close(self, *, is_finished: bool) -> None:
        """Write out everything; a run that is not finished counts as failed until it is resumed."""
        self._run.finish(exit_code=0 if is_finished else 1)
