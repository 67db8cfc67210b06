"""The result of a run, as result.json has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from infra.dataset.catalog import DatasetVersion
from training.config import TrainConfig
from training.loop.loop import TrainingLoop
from training.loop.parts import TrainingParts
from training.ranks.device_memory import peak_device_bytes
from training.results.predictions.file import predictions_file
from training.results.predictions.label_errors import OUT_OF_SAMPLE


def run_result(
    config: TrainConfig,
    version: DatasetVersion,
    run_dir: Path,
    parts: TrainingParts,
    loop: TrainingLoop,
    metrics: dict[str, Any],
    more_notes: list[str],
) -> dict[str, Any]:
    """Return the figures of a run and the paths of its files, JSON-able.

    Args:
        config: the configuration that the run followed.
        version: the dataset version.
        run_dir: the folder of the run.
        parts: the best model.
        loop: the loop at its end.
        metrics: the figures of the evaluated splits.
        more_notes: notes besides those of the model and of missing splits.
    """
    missing = [split for split in OUT_OF_SAMPLE if split not in metrics]
    notes = [*parts.notes, *more_notes]
    if parts.pruning is not None:
        notes.append(f"pruned: {parts.pruning.share_of_zeros():.1%} of the weights in pruned layers are zero")
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
        "model": config.model.name,
        "image_size": parts.spec.image_size,
        "num_parameters": int(parts.model.count_params()),
        "classes": version.manifest.classes,
        "epochs": loop.progress.epoch,
        "steps": loop.run_step,
        "global_batch_size": config.data.batch_size,
        "num_replicas": parts.strategy.num_replicas_in_sync,
        "devices": list(parts.strategy.extended.worker_devices),
        "metrics": metrics,
        "best": loop.progress.best,
        "stopped_early": loop.stopped_early,
        "history": loop.progress.history,
        **{name: round(value, 4) for name, value in loop.rates().items()},
        "export_dir": str(run_dir / "export"),
        "tensorboard_dir": str(run_dir / "logs"),
        "predictions": {split: str(run_dir / predictions_file(split)) for split in metrics},
        "confusion_pictures": {split: str(run_dir / f"confusion-{split}.svg") for split in metrics},
        "notes": notes,
        "unchanged": False,
        "device_peak_bytes": peak_device_bytes(),
        "tensorflow": tf.__version__,
    }
