"""A small model in PyTorch whose images become NaN once, on rank 1; see ``nan_model``."""

from __future__ import annotations

import json
import os
from typing import Any

import torch
from torch import nn

from shardmill.training.models import ModelSpec
from tests.samples.models import torch_model
from tests.samples.once import happens_once

DEFAULT_IMAGE_SIZE = 16
NAN_AT = 6
MARKER = "SHARDMILL_TEST_NAN"


class SpoilsOnRankOne(nn.Module):  # type: ignore[misc]
    """Passes images on, and on rank 1 spoils them once."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0
        self._is_on_rank_one = (
            json.loads(os.environ.get("TF_CONFIG") or "{}").get("task", {}).get("index") == 1
        )

    def forward(self, images: Any) -> Any:
        self._calls += self.training
        if self._is_on_rank_one and self.training and self._calls == NAN_AT and happens_once(MARKER):
            return torch.full_like(images, torch.nan)
        return images


def build(spec: ModelSpec) -> Any:
    """The model."""
    return nn.Sequential(SpoilsOnRankOne(), torch_model.build(spec))
