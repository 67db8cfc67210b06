"""The part of a run's result that only PyTorch knows."""

from __future__ import annotations

from typing import Any

import torch

from shardmill.training.torch.memory.figures import peak_device_bytes
from shardmill.training.torch.models.layers import num_parameters
from shardmill.training.torch.parts import TrainingParts


def describe_model(parts: TrainingParts) -> dict[str, Any]:
    """Return the sizes of the model, the ranks and the version of PyTorch, JSON-able."""
    return {
        "framework": "torch",
        "image_size": parts.spec.image_size,
        "num_parameters": num_parameters(parts.model),
        "num_replicas": parts.ranks.num_ranks,
        "device_peak_bytes": peak_device_bytes(parts.device),
        "torch": torch.__version__,
    }
