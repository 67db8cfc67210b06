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
        description="Regular expression searched in each URI; the text that its first parenthesis matches is "
        "the group (a patient, a video)",
    )
    near_duplicates: bool = Field(True, description="Group images that look the same")
    max_difference: Annotated[float, Field(ge=0, le=0.12)] = Field(
        0.035,
        description="How much the structures of images that look the same may differ: 0 for the same "
        "structure, 1 for two that have nothing in common. 0 groups only images with the very same look",
    )
    symmetries: bool = Field(True, description="Find mirrored and turned copies too")
    crops: bool = Field(True, description="Find copies too that were cut by up to 5 % at each side")
    max_distance: Annotated[int, Field(ge=0, le=16)] = Field(
        6,
        description="Bits of 64 in which the hashes of two images may differ, for their structures to be "
        "compared at all",
    )
    embeddings: EmbeddingsConfig = Field(
        EmbeddingsConfig(), description="Vectors of the images, by which near-duplicates are found too"
    )
    leakage: Leakage = Field(
        "keep",
        description="Action when folders or an earlier version put members of a group into several splits. "
        "keep: keep all of them and report the leak; drop-from-train: leave out its records in train; fail: "
        "publish nothing",
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
