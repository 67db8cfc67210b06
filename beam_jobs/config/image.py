"""The stored form of an image."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from shardmill.infra.format.metadata import METADATA_NAMES, MetadataName
from shardmill.infra.preparation import Preparation

_MIB = 1 << 20


class ImageConfig(Preparation):
    """The stored form of an image."""

    max_bytes: Annotated[int, Field(ge=1, le=1 << 31)] = Field(
        256 * _MIB,
        description="Largest source file (bytes); larger ones are quarantined as too_large",
    )
    metadata: tuple[MetadataName, ...] = Field(
        (),
        description="What files say of themselves that becomes features of the records: names, or all",
    )

    @field_validator("metadata", mode="before")
    @classmethod
    def _all_or_names(cls, value: object) -> object:
        if value == "all":
            return METADATA_NAMES
        return tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value

    @field_validator("metadata")
    @classmethod
    def _in_order(cls, names: tuple[MetadataName, ...]) -> tuple[MetadataName, ...]:
        return tuple(name for name in METADATA_NAMES if name in names)
