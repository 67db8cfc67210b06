"""The table [train.model]: the model, and its initial weights."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from shardmill.infra.settings import AlsoCalled, Settings, WrongValue
from shardmill.training.models import resolve_name
from shardmill.training.models.names import find_torchvision, is_built_in


class ModelSettings(Settings):
    """The model and its initial weights."""

    name: Annotated[str, AlsoCalled("model", "architecture", "arch", "network", "backbone", "model_name")] = (
        Field(
            default="small_cnn",
            description=(
                "small_cnn, compact_resnet, a model of keras.applications (PyTorch: torchvision), code "
                "of your own, such as my_models:build, or a plugin"
            ),
        )
    )
    weights: Annotated[str | None, AlsoCalled("pretrained", "checkpoint")] = Field(
        default=None,
        description=(
            "'imagenet' (downloaded by Keras), or a .weights.h5, .keras or (PyTorch) .pt file; unset: random"
        ),
    )
    partial_weights: bool = Field(
        default=False,
        description=("Let any layer that the file lacks, or has in another shape, begin with random weights"),
    )
    dropout: float = Field(
        default=0.2, ge=0, lt=1, description="share of features dropped before the classifier"
    )
    freeze: Annotated[
        Literal["none", "backbone"] | Annotated[int, Field(ge=1, le=1_000_000)] | tuple[str, ...],
        AlsoCalled("frozen", "trainable"),
    ] = Field(
        default="none",
        description=(
            "Layers that stay as they are: 'backbone' (all but the last with weights), the number "
            "of layers with weights from the input on, or patterns of names"
        ),
    )
    warm_head_epochs: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description=("First epochs in which only the classifier learns; then optimizer.schedule begins"),
    )
    synchronized_batchnorm: bool = Field(
        default=True,
        description=("Batch normalisation over the global batch; off: over each device's part"),
    )

    @field_validator("freeze", mode="before")
    @classmethod
    def _one_of_three(cls, value: Any) -> Any:
        """Check the kind of value here, since pydantic's message for a union would name all types."""
        named = isinstance(value, list | tuple) and value and all(isinstance(name, str) for name in value)
        counted = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1_000_000
        if value not in ("none", "backbone") and not named and not counted:
            raise ValueError("give 'none', 'backbone', a number of layers, or a list of names of layers")
        return tuple(value) if named else value

    @model_validator(mode="after")
    def _frozen_layers_have_weights(self) -> Self:
        # The module of another may load weights by itself.
        if self.freeze != "none" and self.weights is None and is_built_in(self.name):
            raise WrongValue(
                f"freeze = {self.freeze!r} without weights would keep layers random", "set model.weights too"
            )
        if self.warm_head_epochs and self.weights is None and is_built_in(self.name):
            raise WrongValue(
                "warm_head_epochs without weights would train on random features", "set model.weights too"
            )
        return self

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            return resolve_name(name)
        except ValueError:
            if (found := find_torchvision(name)) is not None:
                return found  # whether the framework of the run has it, TrainConfig checks
            raise
