"""The part of a run's result that does not depend on the framework. No TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.config import TrainConfig
from shardmill.training.results.predictions.file import predictions_file
from shardmill.training.results.predictions.label_errors import OUT_OF_SAMPLE
from shardmill.training.run.checkpoints.checkpoints import Progress
from shardmill.training.tasks.traits import traits_of


class EndedLoop(Protocol):
    """A training loop at its end."""

    @property
    def progress(self) -> Progress:
        """The position of the run, and its counts."""

    @property
    def run_step(self) -> int:
        """The number of steps done, over all epochs."""

    @property
    def stopped_early(self) -> str | None:
        """The reason why the run ended before its last epoch; None: it did not."""

    def rates(self) -> dict[str, float]:
        """Return the images per second of training, and the share of that time spent waiting for data."""


def common_result(
    config: TrainConfig,
    version: DatasetVersion,
    run_dir: Path,
    loop: EndedLoop,
    metrics: Mapping[str, Any],
    notes: list[str],
) -> dict[str, Any]:
    """Return the figures of a run and the paths of its files, JSON-able.

    Args:
        config: the configuration that the run followed.
        version: the dataset version.
        run_dir: the folder of the run.
        loop: the loop at its end.
        metrics: the figures of the evaluated splits.
        notes: what a reader of the result should know of the model.
    """
    missing = [split for split in OUT_OF_SAMPLE if split not in metrics]
    notes = list(notes)
    if config.data.left_out_fold is not None:
        notes.append(
            f"fold {config.data.left_out_fold} of {config.data.folds} of the train split was left out"
        )
    notes += [f"{version.ref} has no {split} split: nothing was measured on it" for split in missing]
    if "validation" in missing:
        notes.append("without validation examples the last model counts as the best")
    return {
        "run_dir": str(run_dir),
        "dataset": version.name,
        "version": version.version,
        **version.describe_view(),
        "model": config.model.name,
        "task": traits_of(version).name,
        "classes": version.manifest.label_names,
        "epochs": loop.progress.epoch,
        "steps": loop.run_step,
        "global_batch_size": config.data.batch_size,
        "metrics": metrics,
        "best_metric": config.run.best_metric,
        "best": loop.progress.best,
        "stopped_early": loop.stopped_early,
        "history": loop.progress.history,
        **{name: round(value, 4) for name, value in loop.rates().items()},
        "export_dir": str(run_dir / "export"),
        "tensorboard_dir": str(run_dir / "logs"),
        "predictions": {split: str(run_dir / predictions_file(split)) for split in metrics},
        "confusion_pictures": {
            split: str(run_dir / f"confusion-{split}.svg")
            for split, figures in metrics.items()
            if "confusion_matrix" in figures
        },
        "notes": notes,
        "unchanged": False,
    }
