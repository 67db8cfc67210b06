"""Limits for the difference between a version and the one before it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shardmill.infra.settings import Settings

Group = Literal["classes", "sizes", "colours", "looks", "duplicates", "quarantine"]
Limit = Annotated[float, Field(ge=0, le=1)]


class DriftLimits(Settings):
    """The largest distance of each group of figures: 0 for the same, 1 for nothing in common."""

    classes: Limit = Field(
        0.3,
        description="Shares of the classes, or the targets, of new images against those of the last version",
    )
    sizes: Limit = Field(
        0.4, description="Width, height, shape and bytes of the source files of new images, likewise"
    )
    colours: Limit = Field(0.25, description="Brightness, contrast and colours of new images, likewise")
    looks: Limit = Field(
        0.1, description="Coarse structure of new images, likewise: shares of the bits of the perceptual hash"
    )
    duplicates: Limit = Field(0.2, description="Rise of the share of duplicates among new inputs")
    quarantine: Limit = Field(0.05, description="Rise of the share of quarantined inputs among new inputs")
    whole: Limit = Field(
        0.5, description="Part of each limit above that the version as a whole may differ from the last one"
    )

    def of(self, group: Group, *, whole: bool) -> float:
        """Return the limit of a group, for new images or for whole versions."""
        limit: float = getattr(self, group)
        return limit * self.whole if whole else limit
