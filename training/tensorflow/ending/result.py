"""The part of a run's result that only TensorFlow knows."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from shardmill.training.tensorflow.parts import TrainingParts
from shardmill.training.tensorflow.ranks.device_memory import peak_device_bytes


def describe_model(parts: TrainingParts) -> dict[str, Any]:
    """Return the sizes of the model, the devices and the version of TensorFlow, JSON-able."""
    return {
        "image_size": parts.spec.image_size,
        "num_parameters": int(parts.model.count_params()),
        "num_replicas": parts.strategy.num_replicas_in_sync,
        "devices": list(parts.strategy.extended.worker_devices),
        "device_peak_bytes": peak_device_bytes(),
        "tensorflow": tf.__version__,
    }


def notes_on_model(parts: TrainingParts) -> list[str]:
    """Return what was changed in the model."""
    notes = list(parts.notes)
    if parts.pruning is not None:
        notes.append(f"pruned: {parts.pruning.share_of_zeros():.1%} of the weights in pruned layers are zero")
    return notes
