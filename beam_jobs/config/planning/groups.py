"""Groups of images that must stay in one split."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from shardmill.beam_jobs.config.planning.embeddings import EmbeddingsConfig
from shardmill.infra.settings import Settings

Leakage = Literal["keep", "drop-from-train", "fail"]


class GroupsConfig(Settings):
    """Groups of images that must stay in one split."""

    pattern: str | None = Field(
        None,
        description="Regular expression on each URI; its first parenthesis is the group (a patient, a video)",
    )
    near_duplicates: bool = Field(True, description="Group images that look the same")
    max_difference: Annotated[float, Field(ge=0, le=0.12)] = Field(
        0.035,
        description=(
            "Largest difference of the structures of near-duplicates: 0 the same, 1 nothing in common"
        ),
    )
    symmetries: bool = Field(True, description="Find mirrored and turned copies too")
    crops: bool = Field(True, description="Find copies cut by up to 5 % at each side too")
    max_distance: Annotated[int, Field(ge=0, le=16)] = Field(
        6,
        description="Bits of 64 in which the hashes of two images may differ for a comparison",
    )
    embeddings: EmbeddingsConfig = Field(
        EmbeddingsConfig(), description="Vectors of the images, by which near-duplicates are found too"
    )
    leakage: Leakage = Field(
        "keep",
        description=(
            "What becomes of a group in several splits: keep and report it; drop-from-train: leave "
            "out its train records; fail: publish nothing"
        ),
    )

    @field_validator("pattern")
    @classmethod
    def _has_a_parenthesis(cls, pattern: str | None) -> str | None:
        if pattern is None:
            return None
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        if not groups:
            raise ValueError("has no parenthesis: put one around the part that names the group")
        return pattern
