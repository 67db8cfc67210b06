"""The table [train.optimizer]: how gradients change the weights."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from infra.settings import Settings


class OptimizerSettings(Settings):
    """How weights follow gradients."""

    name: Literal["adamw", "adam", "sgd"] = Field(
        default="adamw", description="adamw, adam, or sgd with momentum"
    )
    learning_rate: float = Field(default=2e-3, gt=0, description="the highest, after warm-up")
    schedule: Literal["cosine", "constant"] = Field(default="cosine", description="what follows the warm-up")
    warmup_fraction: float = Field(
        default=0.1, ge=0, lt=1, description="share of the steps in which the rate rises"
    )
    weight_decay: float = Field(
        default=1e-2, ge=0, description="decoupled; not applied to biases and normalisation"
    )
    momentum: float = Field(default=0.9, ge=0, lt=1, description="of sgd")
    label_smoothing: float = Field(
        default=0.0, ge=0, lt=1, description="share of the target spread over all classes"
    )
