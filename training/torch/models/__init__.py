"""Models of PyTorch by name: ``small_cnn``, those of torchvision, any module with ``build``.

A model takes pixels, float32 [B, C, S, S] of 0 to 255, and returns logits float32 [B, num_classes].
Normalisation of the input is part of the model.
"""

from __future__ import annotations

from shardmill.training.torch.models.normalization import Normalization
from shardmill.training.torch.models.registry import build_model, load_weights

__all__ = ["Normalization", "build_model", "load_weights"]
