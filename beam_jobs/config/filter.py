"""Inputs to leave out."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from shardmill.infra.settings import Settings

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
    classes: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
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
    ignore: tuple[str, ...] = Field(
        DEFAULT_IGNORE,
        description="Shell patterns of files and folders to ignore: of a name, or with a '/' of a path",
    )

    @field_validator("classes", "ignore", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value
