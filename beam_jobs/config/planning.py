"""Planning: fractions of the splits, groups of images, number and size of shards, and drift."""

from __future__ import annotations

import math
import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from shardmill.infra.dataset.drift.figures import DriftLimits
from shardmill.infra.format.records import Container
from shardmill.infra.settings import AlsoCalled, Settings, WrongValue
from shardmill.infra.similarity import LookRules


class SplitsConfig(Settings):
    """Fractions of each class, unless the source gives the splits itself."""

    train: Annotated[
        float, Field(ge=0, le=1), AlsoCalled("split", "splits", "train_split", "train_fraction")
    ] = Field(0.8, description="For training")
    validation: Annotated[float, Field(ge=0, le=1), AlsoCalled("val", "valid", "dev", "validation_split")] = (
        Field(0.1, description="For choosing between models")
    )
    test: Annotated[float, Field(ge=0, le=1), AlsoCalled("test_split", "test_size")] = Field(
        0.1, description="For the final measurement"
    )

    @model_validator(mode="after")
    def _sum_to_one(self) -> Self:
        total = self.train + self.validation + self.test
        if not math.isclose(total, 1.0, abs_tol=1e-9):
            raise WrongValue(
                f"the fractions sum to {total:g}, not to 1",
                "give all three: --set splits.train=0.8 --set splits.validation=0.1 --set splits.test=0.1",
            )
        return self

    def fractions(self) -> tuple[float, float, float]:
        """Return the fractions in the order of ``shardmill.infra.format.contract.SPLITS``."""
        return self.train, self.validation, self.test


class EmbeddingsConfig(Settings):
    """Vectors (embeddings) of the images, by which near-duplicates are found too."""

    file: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        description=(
            "Parquet or npz with a vector for each image: a path (relative to the source), a URI or a pattern"
        ),
    )
    min_similarity: Annotated[float, Field(ge=0.5, le=1)] = Field(
        0.95, description="Least cosine of the vectors of near-duplicates"
    )


Leakage = Literal["keep", "drop-from-train", "fail"]


class GroupsConfig(Settings):
    """Groups of images that must stay in one split."""

    pattern: str | None = Field(
        None,
        description="Regular expression on each URI; its first parenthesis is the group",
    )
    near_duplicates: bool = Field(True, description="Group images that look the same")
    max_difference: Annotated[float, Field(ge=0, le=0.12)] = Field(
        0.035,
        description=("Largest difference of near-duplicates: 0 the same, 1 nothing in common"),
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
            "A group in several splits: keep and report it; drop-from-train: leave out its train "
            "records; fail: publish nothing"
        ),
    )

    @property
    def looks(self) -> LookRules:
        """How images are compared by their looks."""
        return LookRules(self.max_difference, self.symmetries, self.crops, self.max_distance)

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
            raise WrongValue("has no parenthesis", "put one around the part that names the group")
        return pattern


_MIB = 1 << 20


class ShardsConfig(Settings):
    """The files that hold the records."""

    num_shards: Annotated[
        Annotated[int, Field(ge=1, le=99_999)] | None, AlsoCalled("count", "shards", "number")
    ] = Field(
        None,
        description=(
            "Shards of each split, at most one a record; a later version writes its share. Unset: by "
            "shard_bytes"
        ),
    )
    shard_bytes: Annotated[
        int, Field(ge=1, le=1 << 40), AlsoCalled("shard_size", "target_bytes", "max_bytes")
    ] = Field(128 * _MIB, description="Target size of a shard, unless num_shards is given")
    container: Annotated[Literal["auto", Container], AlsoCalled("compression", "gzip")] = Field(
        "auto",
        description="gzip: one member a record; none: plain TFRecord; auto: gzip if it saves enough",
    )


class DriftConfig(DriftLimits):
    """Comparison of each version with the one before it, and the action if they differ too much."""

    action: Literal["warn", "stop", "off"] = Field(
        "warn",
        description=("warn: log each figure beyond its limit; stop: publish nothing; off: compare nothing"),
    )
