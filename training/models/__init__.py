"""Models by name: families of this project, ``keras.applications``, any module with ``build``."""

from __future__ import annotations

from shardmill.training.models.normalization import normalized
from shardmill.training.models.registry import build_model, default_image_size, known_models, resolve_name
from shardmill.training.models.spec import ModelSpec, PixelStatistics

__all__ = [
    "ModelSpec",
    "PixelStatistics",
    "build_model",
    "default_image_size",
    "known_models",
    "normalized",
    "resolve_name",
]
