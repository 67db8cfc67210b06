"""Fractions of the splits."""

from __future__ import annotations

import math
from typing import Annotated, Self

from pydantic import Field, model_validator

from shardmill.infra.settings import AlsoCalled, Settings


class SplitsConfig(Settings):
    """Fractions of each class, unless the source gives the splits itself."""

    train: Annotated[
        float, Field(ge=0, le=1), AlsoCalled("split", "splits", "train_split", "train_fraction")
    ] = Field(0.8, description="Fraction of each class for training")
    validation: Annotated[float, Field(ge=0, le=1), AlsoCalled("val", "valid", "dev", "validation_split")] = (
        Field(0.1, description="Fraction of each class for choosing between models")
    )
    test: Annotated[float, Field(ge=0, le=1), AlsoCalled("test_split", "test_size")] = Field(
        0.1, description="Fraction of each class for the final measurement"
    )

    @model_validator(mode="after")
    def _sum_to_one(self) -> Self:
        total = self.train + self.validation + self.test
        if not math.isclose(total, 1.0, abs_tol=1e-9):
            raise ValueError(f"the fractions sum to {total:g}, not to 1")
        return self

    def fractions(self) -> tuple[float, float, float]:
        """Return the fractions in the order of ``shardmill.infra.format.contract.SPLITS``."""
        return self.train, self.validation, self.test
