"""Mirror every other image from left to right, or from top to bottom."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from shardmill.infra.preparation import SampleKind
from shardmill.infra.settings import AlsoCalled, Settings
from shardmill.infra.splitmix import U64
from shardmill.training.augment.kind import Array, Arrays, ImageAugmentation, Points, cv2, tf
from shardmill.training.draws import uniform

_LEFT_RIGHT, _TOP_BOTTOM = 400, 401  # streams
_MOST_CHANNELS = 4  # of OpenCV
_OPENCV = {(True, False): 1, (False, True): 0, (True, True): -1}


class _Fields(Settings):
    horizontal_flip: Annotated[bool, AlsoCalled("flip", "hflip", "mirror")] = Field(
        default=True,
        description="Mirror every other image; not where left and right differ",
    )
    vertical_flip: bool = Field(
        default=False,
        description="Mirror every other image from top to bottom",
    )


class Flips(ImageAugmentation[_Fields]):
    """Mirrors images. Draws ``left_right`` and ``top_bottom``, bool [B]."""

    Fields = _Fields
    turn = 20
    streams = range(_LEFT_RIGHT, _TOP_BOTTOM + 1)
    objects_follow = True
    name = "augment.horizontal_flip and augment.vertical_flip"
    is_in_graph = True

    @property
    def is_on(self) -> bool:
        """Whether images are mirrored along any axis."""
        return self.settings.horizontal_flip or self.settings.vertical_flip

    def draw(self, keys: U64, image_size: int) -> Arrays:
        """Draw which images are mirrored."""
        wanted = self.settings.horizontal_flip, self.settings.vertical_flip
        left_right, top_bottom = (
            uniform(keys, stream) < 0.5 if on else np.zeros(keys.shape, np.bool_)
            for stream, on in zip((_LEFT_RIGHT, _TOP_BOTTOM), wanted, strict=True)
        )
        return {"left_right": left_right, "top_bottom": top_bottom}

    def unfit(self, samples: SampleKind) -> str:
        """Say that every image can be mirrored."""
        return ""

    def apply(self, image: Array, drawn: Arrays, row: int) -> None:
        """Mirror an image in place."""
        if image.shape[2] > _MOST_CHANNELS:
            image[...] = self.move_mask(image, drawn, row).copy()
            return
        axes = _OPENCV.get((bool(drawn["left_right"][row]), bool(drawn["top_bottom"][row])))
        if axes is not None:
            cv2.flip(image, axes, dst=image)

    def mirrors(self, drawn: Arrays, row: int) -> bool:
        """Tell whether an image is mirrored from left to right only."""
        return bool(drawn["left_right"][row]) and not drawn["top_bottom"][row]

    def apply_in_graph(self, image: Any, drawn: dict[str, Any]) -> Any:
        """Return the mirrored image, uint8 [S, S, 3]."""
        for axis, name in enumerate(("top_bottom", "left_right")):
            image = tf.cond(drawn[name], partial(tf.reverse, image, [axis]), partial(tf.identity, image))
        return image

    def move_points(self, points: Points, drawn: Arrays) -> Points:
        """Mirror the points [B, M, 2] of mirrored images."""
        moved = points.copy()
        for axis, flips in enumerate((drawn["top_bottom"], drawn["left_right"])):
            moved[flips, :, axis] = 1.0 - moved[flips, :, axis]
        return moved

    def move_mask(self, mask: Array, drawn: Arrays, row: int) -> Array:
        """Mirror the mask of a mirrored image."""
        mask = mask[::-1] if drawn["top_bottom"][row] else mask
        return mask[:, ::-1] if drawn["left_right"][row] else mask
