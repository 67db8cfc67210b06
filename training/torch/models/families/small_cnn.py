"""The ``small_cnn`` of ``shardmill.training.tensorflow.models.families`` in PyTorch, layer by layer."""

from __future__ import annotations

from typing import Any

from torch import nn

from shardmill.training.models import ModelSpec
from shardmill.training.torch.models.normalization import Normalization

DEFAULT_IMAGE_SIZE = 64
_WIDTHS = (16, 32, 64, 128)


def build(spec: ModelSpec) -> Any:
    """Build four stages of convolution, batch normalisation and ReLU, and a classifier."""
    layers: list[nn.Module] = [Normalization.of(spec)]
    width_in = spec.image_shape[-1]
    for stage, width in enumerate(_WIDTHS):
        stride = 1 if stage else 2
        layers += [nn.Conv2d(width_in, width, 3, stride=stride, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(width), nn.ReLU()]
        if 0 < stage < len(_WIDTHS) - 1:
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
        width_in = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(spec.dropout)]
    return nn.Sequential(*layers, nn.Linear(width_in, spec.num_classes))
