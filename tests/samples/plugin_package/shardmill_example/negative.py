"""Turn images into their negatives. It moves no pixel, so boxes and masks stay."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pydantic import Field

from shardmill.infra.settings import Settings
from shardmill.infra.splitmix import U64
from shardmill.training.augment.kind import Arrays, ImageAugmentation
from shardmill.training.draws import uniform


class NegativeFields(Settings):
    """The table [train.augment.negative]."""

    share: float = Field(0.5, ge=0, le=1, description="share of the images that are turned")


class Negative(ImageAugmentation[NegativeFields]):
    """Draws ``turned``, bool [B]."""

    Fields = NegativeFields
    turn = 50
    objects_follow = True
    name = "augment.negative"

    @property
    def is_on(self) -> bool:
        """Whether any image is turned."""
        return self.settings.share > 0

    def draw(self, keys: U64, image_size: int) -> Arrays:
        """Draw which images are turned."""
        return {"turned": uniform(keys, 0) < self.settings.share}

    def apply(self, image: npt.NDArray[np.uint8], drawn: Arrays, row: int) -> None:
        """Turn an image, in place."""
        if drawn["turned"][row]:
            np.subtract(255, image, out=image, casting="unsafe")
