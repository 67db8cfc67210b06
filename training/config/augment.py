"""The table [train.augment]: how a training example may differ from its stored image."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from infra.settings import Settings


class AugmentSettings(Settings):
    """How a training example may differ from its stored image."""

    random_resized_crop: bool = Field(
        default=True, description="cut a random window; otherwise the central square"
    )
    scale: tuple[float, float] = Field(
        default=(0.5, 1.0), description="smallest and largest share of the image's area in a random window"
    )
    ratio: tuple[float, float] = Field(
        default=(0.75, 4 / 3), description="narrowest and widest aspect ratio of a random window"
    )
    horizontal_flip: bool = Field(
        default=True,
        description="mirror every other image; turn it off where left and right differ, as in digits",
    )

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise ValueError(f"scale {self.scale}: smallest and largest share must rise within (0, 1]")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(f"ratio {self.ratio}: narrowest and widest must rise and be positive")
        return self
