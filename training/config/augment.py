"""The table [train.augment]: how a training example may differ from its stored image."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shardmill.infra.settings import AlsoCalled, Settings

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
        """Whether anything may change."""
        return any((self.brightness, self.contrast, self.saturation, self.hue))


class ErasingSettings(Settings):
    """Random erasing: a box of the example is covered."""

    probability: float = Field(default=0.0, ge=0, le=1, description="share of the examples that lose a box")
    scale: tuple[float, float] = Field(
        default=(0.02, 0.33), description="smallest and largest share of the example's area in a box"
    )
    ratio: tuple[float, float] = Field(
        default=(0.3, 3.3), description="narrowest and widest aspect ratio of a box"
    )
    fill: ErasingFill = Field(
        default="mean", description="content of the box: the example's mean colour, black, or noise"
    )

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        _check_ranges(self.scale, self.ratio)
        return self


class RandAugmentSettings(Settings):
    """RandAugment (Cubuk et al. 2020): some operations, drawn from fourteen, all of one strength."""

    num_ops: int = Field(default=0, ge=0, le=4, description="operations on each example; 0 turns it off")
    magnitude: float = Field(
        default=5.0, ge=0, le=10, description="their strength: at 10 they turn by 30° or shift by 45 %"
    )


class AugmentSettings(Settings):
    """How a training example may differ from its stored image."""

    random_resized_crop: Annotated[bool, AlsoCalled("random_crop", "crop")] = Field(
        default=True, description="cut a random window; otherwise all that data.fit shows"
    )
    scale: tuple[float, float] = Field(
        default=(0.5, 1.0), description="smallest and largest share of the image's area in a random window"
    )
    ratio: tuple[float, float] = Field(
        default=(0.75, 4 / 3), description="narrowest and widest aspect ratio of a random window"
    )
    horizontal_flip: Annotated[bool, AlsoCalled("flip", "hflip", "mirror")] = Field(
        default=True,
        description="Mirror every other image; not where left and right differ",
    )
    vertical_flip: bool = Field(
        default=False,
        description="Turn every other image over, for views from above or through a microscope",
    )
    color_jitter: ColorJitterSettings = Field(
        default_factory=ColorJitterSettings, description="changes of brightness, contrast, saturation and hue"
    )
    erasing: ErasingSettings = Field(default_factory=ErasingSettings, description="covering a part")
    randaugment: RandAugmentSettings = Field(
        default_factory=RandAugmentSettings, description="drawn operations, on the device"
    )
    mixup: float = Field(
        default=0.0,
        ge=0,
        le=10,
        description=(
            "Alpha of MixUp: blend an example and its label with its neighbour's, in shares of "
            "Beta(alpha, alpha); 0: off, 0.2 is usual"
        ),
    )
    cutmix: float = Field(
        default=0.0,
        ge=0,
        le=10,
        description=(
            "Alpha of CutMix: a box of an example, and of its label, is its neighbour's; 0: off, 1 is usual"
        ),
    )
    mix_probability: float = Field(
        default=1.0, ge=0, le=1, description="share of the examples that mixup and cutmix take hold of"
    )

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        _check_ranges(self.scale, self.ratio)
        return self

    @property
    def mixes(self) -> bool:
        """Whether examples and their labels are mixed."""
        return bool((self.mixup or self.cutmix) and self.mix_probability)

    @property
    def needs_more_than_flips(self) -> bool:
        """Whether examples are augmented by more than windows and flips from left to right."""
        return self.vertical_flip or self.color_jitter.is_on or self.erasing.probability > 0

    @property
    def is_batched(self) -> bool:
        """Whether anything is done to whole batches, on the device."""
        return self.mixes or bool(self.randaugment.num_ops)


def _check_ranges(scale: tuple[float, float], ratio: tuple[float, float]) -> None:
    if not 0 < scale[0] <= scale[1] <= 1:
        raise ValueError(f"scale {scale}: must be two numbers above 0 and at most 1, smaller first")
    if not 0 < ratio[0] <= ratio[1]:
        raise ValueError(f"ratio {ratio}: must be two positive numbers, smaller first")
