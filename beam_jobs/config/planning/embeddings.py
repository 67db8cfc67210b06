"""Vectors that a model of the user's gives the images."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shardmill.infra.settings import Settings


class EmbeddingsConfig(Settings):
    """Vectors (embeddings) of the images, by which near-duplicates are found too."""

    file: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        description=(
            "Parquet or npz with a vector for each image: a path relative to the source, an absolute "
            "path, a URI or a pattern"
        ),
    )
    min_similarity: Annotated[float, Field(ge=0.5, le=1)] = Field(
        0.95, description="Least cosine of the vectors of near-duplicates"
    )
