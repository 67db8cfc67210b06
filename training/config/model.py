"""The table [train.model]: the model, and its initial weights."""

from __future__ import annotations

from pydantic import Field, field_validator

from infra.settings import Settings
from training.models import resolve_name


class ModelSettings(Settings):
    """The model and its initial weights."""

    name: str = Field(
        default="small_cnn",
        description="small_cnn, a model of keras.applications (ResNet50, EfficientNetB0, …), "
        "or a module with a build function by its dotted name",
    )
    weights: str | None = Field(
        default=None,
        description="initial weights: none (random), 'imagenet' (downloaded by Keras), or the path of a "
        ".weights.h5 or .keras file",
    )
    dropout: float = Field(
        default=0.2, ge=0, lt=1, description="share of features dropped before the classifier"
    )

    synchronized_batchnorm: bool = Field(
        default=True,
        description="with several devices, batch normalisation over the whole global batch as on one; "
        "off, over each device's part: deep models then compile several times sooner",
    )

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return resolve_name(name)
