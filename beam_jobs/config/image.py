"""The stored form of an image, and inputs to leave out."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from shardmill.beam_jobs.config.columns import Names
from shardmill.infra.format.known_features import METADATA_NAMES, MetadataName
from shardmill.infra.preparation import Preparation
from shardmill.infra.settings import Settings

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


# Patterns of files that often lie beside images; case does not matter.
DEFAULT_IGNORE = (
    ".*", "__MACOSX", "@eaDir", "Thumbs.db", "desktop.ini", "LICENSE", "README",
    "*.txt", "*.md", "*.rst", "*.csv", "*.tsv", "*.json", "*.jsonl", "*.xml", "*.yaml", "*.yml", "*.html",
)  # fmt: skip


class FilterConfig(Settings):
    """Inputs to leave out. Each keeps a row in the inputs, with the reason."""

    min_width: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Leave out narrower images (upright pixels)"
    )
    min_height: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Leave out lower images (upright pixels)"
    )
    max_aspect: Annotated[float, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="Leave out images whose longer side is more than so many times the shorter"
    )
    ai_made: Literal["keep", "drop"] = Field(
        "keep",
        description="drop: leave out images whose metadata declare a generative model",
    )
    classes: Annotated[Names, Field(min_length=1)] | None = Field(
        None,
        description="Names of the classes to keep; unset: all",
    )
    drop_empty_classes: bool = Field(
        False,
        description=(
            "Forget classes without a record in the newest version and this one; other classes change"
            " numbers, and all records are copied"
        ),
    )
    ignore: Names = Field(
        DEFAULT_IGNORE,
        description="Shell patterns of files and folders to ignore: of a name, or with a '/' of a path",
    )
