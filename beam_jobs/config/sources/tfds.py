"""A directory of TensorFlow Datasets."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from shardmill.infra.settings import Settings

PlaceOfSplit = Literal["train", "validation", "test", "chosen", "none"]


class TfdsConfig(Settings):
    """The splits and features of ``source.kind = "tfds"``; image, label and names of classes: source.rows."""

    splits: dict[str, PlaceOfSplit] = Field(
        {},
        description=(
            "Name of a split to train, validation, test, chosen (Shardmill divides it) or none (left "
            "out). Unset: by its name"
        ),
    )
    features: tuple[str, ...] | None = Field(
        None,
        description="Features that the records get besides image and label; unset: all that can be one",
    )

    @field_validator("features", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value
