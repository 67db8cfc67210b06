"""The cells of a detector's maps: the pixels that they are about, and the boxes that they predict."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shardmill.training.tensorflow.models.dense.detector import STRIDES

# Distances up to e^8 strides: beyond any image, and far from overflowing.
_LARGEST_LOGARITHM = 8.0


@dataclass(frozen=True)
class Cells:
    """The cells of all maps, row by row, the finest map first; L in number.

    Attributes:
        image_size: height and width of the images (pixels), a multiple of the largest stride.
        strides: pixels of the image per cell, of each map.
    """

    image_size: int
    strides: tuple[int, ...] = STRIDES

    @cached_property
    def sides(self) -> tuple[int, ...]:
        """Rows, and columns, of each map."""
        return tuple(self.image_size // stride for stride in self.strides)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The number of the first cell of each map."""
        ends = np.cumsum([side * side for side in self.sides]).tolist()
        return (0, *ends[:-1])

    @cached_property
    def stride_of(self) -> npt.NDArray[np.float32]:
        """The stride of each cell (pixels): float32 [L]."""
        counts = [side * side for side in self.sides]
        return np.repeat(np.array(self.strides, np.float32), counts)

    @cached_property
    def centres(self) -> npt.NDArray[np.float32]:
        """The centre of each cell, relative to the image: y, x, float32 [L, 2]."""
        maps = []
        for side in self.sides:
            middles = (np.arange(side, dtype=np.float32) + 0.5) / side
            rows, columns = np.meshgrid(middles, middles, indexing="ij")
            maps.append(np.stack([rows.ravel(), columns.ravel()], axis=1))
        return np.concatenate(maps)

    def boxes(self, distances: Any) -> Any:
        """Return the boxes that cells predict: float32 [b, L, 4].

        Args:
            distances: float32 [b, L, 4], from the centre to the top, left, bottom and right edge, as
                logarithms, in strides.
        """
        relative = (self.stride_of / self.image_size)[:, np.newaxis]
        lengths = tf.exp(tf.minimum(distances, _LARGEST_LOGARITHM)) * relative
        return tf.concat([self.centres - lengths[..., :2], self.centres + lengths[..., 2:]], axis=-1)
