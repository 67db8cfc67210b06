"""Turn each image by 0, 90, 180 or 270 degrees."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field

from shardmill.infra.preparation import SampleKind
from shardmill.infra.settings import AlsoCalled, Settings
from shardmill.infra.splitmix import U64
from shardmill.training.augment.kind import Array, Arrays, ImageAugmentation, Points, cv2, tf
from shardmill.training.draws import uniform

_TURNS = 500  # stream
_MOST_CHANNELS = 4  # of OpenCV
_OPENCV = {1: 2, 2: 1, 3: 0}  # turns to the left: its code


class _Fields(Settings):
    quarter_turns: Annotated[bool, AlsoCalled("rotate90", "rot90", "random_rotate90")] = Field(
        default=False,
        description="Turn each image by 0°, 90°, 180° or 270°",
    )


class QuarterTurns(ImageAugmentation[_Fields]):
    """Turns images. Draws ``turns``, int32 [B]: 0 to 3 quarters to the left, as ``numpy.rot90``."""

    Fields = _Fields
    turn = 25
    streams = range(_TURNS, _TURNS + 1)
    objects_follow = True
    name = "augment.quarter_turns"
    is_in_graph = True

    @property
    def is_on(self) -> bool:
        """Whether images are turned."""
        return self.settings.quarter_turns

    def draw(self, keys: U64, image_size: int) -> Arrays:
        """Draw how far each image is turned."""
        return {"turns": (uniform(keys, _TURNS) * 4).astype(np.int32)}

    def unfit(self, samples: SampleKind) -> str:
        """Say that every image can be turned."""
        return ""

    def apply(self, image: Array, drawn: Arrays, row: int) -> None:
        """Turn an image in its own memory."""
        turns = int(drawn["turns"][row])
        if turns and image.shape[2] <= _MOST_CHANNELS:
            image[...] = cv2.rotate(image, _OPENCV[turns]).reshape(image.shape)  # it drops a single channel
        elif turns:
            image[...] = np.rot90(image, turns).copy()

    def apply_in_graph(self, image: Any, drawn: dict[str, Any]) -> Any:
        """Return the turned image, uint8 [S, S, 3]."""
        return tf.ensure_shape(tf.image.rot90(image, drawn["turns"]), image.shape)

    def move_points(self, points: Points, drawn: Arrays) -> Points:
        """Turn the points [B, M, 2] of turned images."""
        moved = points.copy()
        for turns in range(1, 4):  # rows that need at least so many quarters are turned by one more
            rows = drawn["turns"] >= turns
            moved[rows] = np.stack([1.0 - moved[rows, :, 1], moved[rows, :, 0]], axis=-1)
        return moved

    def move_mask(self, mask: Array, drawn: Arrays, row: int) -> Array:
        """Turn the mask of a turned image."""
        turned: Array = np.rot90(mask, drawn["turns"][row])
        return turned
