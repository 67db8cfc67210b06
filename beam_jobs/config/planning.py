"""Settings of planning: splits, groups and shards."""

from __future__ import annotations

import math
import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from beam_jobs.config.embeddings import EmbeddingsConfig
from infra.format.records import Container
from infra.settings import Settings

_MIB = 1 << 20
Leakage = Literal["keep", "drop-from-train", "fail"]


class SplitsConfig(Settings):
    """Fractions of each class, unless the source gives the splits itself."""

    train: Annotated[float, Field(ge=0, le=1)] = Field(0.8, description="Fraction of each class for training")
    validation: Annotated[float, Field(ge=0, le=1)] = Field(
        0.1, description="Fraction of each class for choosing between models"
    )
    test: Annotated[float, Field(ge=0, le=1)] = Field(
        0.1, description="Fraction of each class for the final measurement"
    )

    @model_validator(mode="after")
    def _sum_to_one(self) -> Self:
        total = self.train + self.validation + self.test
        if not math.isclose(total, 1.0, abs_tol=1e-9):
            raise ValueError(f"the fractions sum to {total:g}, not to 1")
        return self

    def fractions(self) -> tuple[float, float, float]:
        """Return the fractions in the order of ``infra.format.contract.SPLITS``."""
        return self.train, self.validation, self.test


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


class ShardsConfig(Settings):
    """The files that hold the records."""

    num_shards: Annotated[int, Field(ge=1, le=99_999)] | None = Field(
        None,
        description="Number of shards of each split, at most one a record; unset: as shard_bytes gives. A "
        "later version writes its share of the number for the records that it adds",
    )
    shard_bytes: Annotated[int, Field(ge=1, le=1 << 40)] = Field(
        128 * _MIB, description="Target size of a shard (bytes); unused if num_shards is given"
    )
    container: Literal["auto", Container] = Field(
        "auto",
        description="gzip: one member a record; none: plain TFRecord; auto: gzip if it saves enough on a "
        "sample",
    )
