"""The result of a run with TensorFlow, as result.json has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from infra.dataset.version import DatasetVersion
from training.config import TrainConfig
from training.loop.ending.common_result import common_result
from training.loop.loop import TrainingLoop
from training.loop.parts import TrainingParts
from training.ranks.hardware.device_memory import peak_device_bytes


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
    notes = [*parts.notes, *more_notes]
    if parts.pruning is not None:
        notes.append(f"pruned: {parts.pruning.share_of_zeros():.1%} of the weights in pruned layers are zero")
    return {
        **common_result(config, version, run_dir, loop, metrics, notes),
        "image_size": parts.spec.image_size,
        "num_parameters": int(parts.model.count_params()),
        "num_replicas": parts.strategy.num_replicas_in_sync,
        "devices": list(parts.strategy.extended.worker_devices),
        "device_peak_bytes": peak_device_bytes(),
        "tensorflow": tf.__version__,
    }
