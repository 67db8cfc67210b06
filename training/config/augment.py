"""The table [train.augment]: how a training example may differ from its stored image."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from infra.settings import Settings

ErasingFill = Literal["mean", "black", "noise"]


class ColorJitterSettings(Settings):
    """How much brightness, contrast, saturation and hue may change. 0 leaves them alone."""

    brightness: float = Field(
        default=0.0, ge=0, le=1, description="factor of all values: 0.4 draws it from 0.6 to 1.4"
    )
    contrast: float = Field(
        default=0.0, ge=0, le=1, description="factor of the distance from the image's mean grey, likewise"
    )
    saturation: float = Field(
        default=0.0, ge=0, le=1, description="factor of the distance from each pixel's grey, likewise"
    )
    hue: float = Field(
        default=0.0, ge=0, le=0.5, description="turns of the colour circle: 0.1 draws from -36° to 36°"
    )

    @property
    def is_on(self) -> bool:
        """Anything may change."""
        return any((self.brightness, self.contrast, self.saturation, self.hue))


class ErasingSettings(Settings):
    """Random erasing: a box of the example is covered."""

    probability: float = Field(default=0.0, ge=0, le=1, description="share of the examples that lose a box")
    scale: tuple[float, float] = Field(
        default=(0.02, 1 / 3), description="smallest and largest share of the example's area in a box"
    )
    ratio: tuple[float, float] = Field(
        default=(0.3, 10 / 3), description="narrowest and widest aspect ratio of a box"
    )
    fill: ErasingFill = Field(
        default="mean", description="what the box is covered with: the example's mean colour, black, or noise"
    )

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        _check_ranges(self.scale, self.ratio)
        return self


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
    vertical_flip: bool = Field(
        default=False,
        description="turn every other image over; for views from above, or through a microscope",
    )
    color_jitter: ColorJitterSettings = Field(
        default_factory=ColorJitterSettings, description="changes of brightness, contrast, saturation and hue"
    )
    erasing: ErasingSettings = Field(default_factory=ErasingSettings, description="covering a part")

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        _check_ranges(self.scale, self.ratio)
        return self


def _check_ranges(scale: tuple[float, float], ratio: tuple[float, float]) -> None:
    if not 0 < scale[0] <= scale[1] <= 1:
        raise ValueError(f"scale {scale}: smallest and largest share must rise within (0, 1]")
    if not 0 < ratio[0] <= ratio[1]:
        raise ValueError(f"ratio {ratio}: narrowest and widest must rise and be positive")
