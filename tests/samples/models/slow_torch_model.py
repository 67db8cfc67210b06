"""``torch_model`` on ranks of different speed: rank 1 takes 10 ms longer for each example."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from torch import nn

from shardmill.training.models import ModelSpec
from tests.samples.models import torch_model

DEFAULT_IMAGE_SIZE = torch_model.DEFAULT_IMAGE_SIZE
SECONDS_AN_EXAMPLE = 0.01


class SlowOnRankOne(nn.Module):  # type: ignore[misc]
    """Passes images on, on rank 1 after a while."""

    def forward(self, images: Any) -> Any:
        """Return ``images`` unchanged."""
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        if config.get("task", {}).get("index", 0) == 1 and self.training:
            time.sleep(SECONDS_AN_EXAMPLE * len(images))
        return images


def build(spec: ModelSpec) -> Any:
    """Build the model, behind a layer that waits."""
    return nn.Sequential(SlowOnRankOne(), torch_model.build(spec))
