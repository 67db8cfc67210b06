"""Models of Keras by name: families of this project, ``keras.applications``, any module with ``build``."""

from __future__ import annotations

from shardmill.training.tensorflow.models.normalization import normalized
from shardmill.training.tensorflow.models.registry import build_model

__all__ = ["build_model", "normalized"]
