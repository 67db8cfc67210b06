"""The parameters of a model, and the names of models. What builds them is in the wing of each framework."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from shardmill.training.models.names import default_image_size, known_models, own_model, resolve_name
from shardmill.training.models.spec import ModelSpec, PixelStatistics

__all__ = ["ModelSpec", "PixelStatistics", "default_image_size", "known_models", "own_model", "resolve_name"]

_MOVED = {"normalized", "build_model"}  # name -> now in the wing


def __getattr__(name: str) -> Any:
    """Return a function that earlier releases had here."""
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        f"{__name__}.{name} is shardmill.training.tensorflow.models.{name} now", DeprecationWarning, 2
    )
    return getattr(importlib.import_module("shardmill.training.tensorflow.models"), name)
