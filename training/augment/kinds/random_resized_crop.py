"""A random window of each image, resized (Szegedy et al.: Going deeper with convolutions, 2015)."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from shardmill.infra.settings import AlsoCalled, Settings
from shardmill.infra.splitmix import U64
from shardmill.training.augment.kind import Sizes, WindowAugmentation, Windows
from shardmill.training.augment.windows import WINDOW_STREAMS, check_ranges, random_windows


class _Fields(Settings):
    random_resized_crop: Annotated[bool, AlsoCalled("random_crop", "crop")] = Field(
        default=True, description="cut a random window; otherwise all that data.fit shows"
    )
    scale: tuple[float, float] = Field(
        default=(0.5, 1.0), description="smallest and largest share of the image's area"
    )
    ratio: tuple[float, float] = Field(default=(0.75, 4 / 3), description="narrowest and widest aspect ratio")

    @model_validator(mode="after")
    def _window_ranges(self) -> Self:
        check_ranges(self.scale, self.ratio)
        return self


class RandomResizedCrop(WindowAugmentation[_Fields]):
    """Cuts windows of random area, aspect and place."""

    Fields = _Fields
    turn = 10
    streams = WINDOW_STREAMS
    name = "augment.random_resized_crop"

    @property
    def is_on(self) -> bool:
        """Whether windows are drawn."""
        return self.settings.random_resized_crop

    def windows(self, heights: Sizes, widths: Sizes, keys: U64) -> Windows:
        """Draw the windows: int32 [B, 4]."""
        return random_windows(heights, widths, keys, self.settings.scale, self.settings.ratio)
