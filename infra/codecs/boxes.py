"""Place the boxes of a source image in the stored image.

A pure function of the size of the source, its EXIF orientation and the way in which images are stored: no
pixel is needed. Boxes are rows of ymin, xmin, ymax, xmax: edges, not centres of pixels, so that a box over a
whole image of height H and width W is 0, 0, H, W.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs.resize import Geometry

Boxes = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_TRANSPOSED, _UPSIDE_DOWN, _MIRRORED = (5, 6, 7, 8), (3, 4, 7, 8), (2, 3, 6, 7)


@dataclass(frozen=True)
class Places:
    """Parameters of cutting and scaling images and laying them on a canvas.

    Attributes:
        window: int64 [N, 4], y, x, height, width in the upright image (pixels).
        scaled: int64 [N, 2], height, width of the window after scaling (pixels).
        canvas: int64 [N, 2], height, width of the stored image (pixels).
        offset: int64 [N, 2], y, x of the scaled window on the canvas (pixels).
    """

    window: Int64
    scaled: Int64
    canvas: Int64
    offset: Int64

    @classmethod
    def of(cls, sizes: Int64, place: Callable[[int, int], Geometry]) -> Self:
        """Return the places of upright images.

        Args:
            sizes: int64 [N, 2], height, width of each.
            place: the geometry of an image of some height and width.
        """
        remembered = lru_cache(maxsize=65_536)(place)
        found: Sequence[Geometry] = [remembered(height, width) for height, width in sizes.tolist()]
        return cls(
            np.array([one.window for one in found], np.int64).reshape(-1, 4),
            np.array([one.scaled for one in found], np.int64).reshape(-1, 2),
            np.array([one.canvas for one in found], np.int64).reshape(-1, 2),
            np.array([one.offset for one in found], np.int64).reshape(-1, 2),
        )


def upright_sizes(sizes: Int64, orientations: Int64) -> Int64:
    """Return height, width of images after they were turned upright: int64 [N, 2].

    Args:
        sizes: int64 [N, 2], height, width as in the file.
        orientations: int64 [N], EXIF orientation, 1 to 8.
    """
    return np.where(np.isin(orientations, _TRANSPOSED)[:, np.newaxis], sizes[:, ::-1], sizes)


def turn_boxes_upright(boxes: Boxes, sizes: Int64, orientations: Int64) -> Boxes:
    """Turn boxes with their images.

    Args:
        boxes: float64 [N, 4], in pixels of the image as in the file.
        sizes: int64 [N, 2], height, width as in the file, of the image of each box.
        orientations: int64 [N], EXIF orientation of the image of each box.

    Returns:
        float64 [N, 4], in pixels of the upright image.
    """
    turned = boxes.copy()
    transposed = np.isin(orientations, _TRANSPOSED)
    turned[transposed] = turned[transposed][:, [1, 0, 3, 2]]
    heights, widths = upright_sizes(sizes, orientations).T
    down = np.isin(orientations, _UPSIDE_DOWN)
    turned[down] = np.stack(
        [heights[down] - turned[down, 2], turned[down, 1], heights[down] - turned[down, 0], turned[down, 3]],
        1,
    )
    mirrored = np.isin(orientations, _MIRRORED)
    flipped = turned[mirrored]
    turned[mirrored] = np.stack(
        [flipped[:, 0], widths[mirrored] - flipped[:, 3], flipped[:, 2], widths[mirrored] - flipped[:, 1]], 1
    )
    return turned


def clip_boxes(boxes: Boxes, heights: npt.ArrayLike, widths: npt.ArrayLike) -> Boxes:
    """Cut boxes off at the edges of their images: float64 [N, 4]. A box outside has no area left."""
    heights, widths = np.asarray(heights, np.float64), np.asarray(widths, np.float64)
    limits = np.stack(np.broadcast_arrays(heights, widths, heights, widths), -1)
    return np.clip(boxes, 0.0, limits)


def place_boxes(boxes: Boxes, places: Places, images: Int64) -> Boxes:
    """Cut, scale and shift boxes as their images are.

    Args:
        boxes: float64 [N, 4], in pixels of the upright image.
        places: where each image lies in the stored one (View).
        images: int64 [N], the image of each box.

    Returns:
        float64 [N, 4], relative to the stored image: 0 to 1. A box that the stored image does not show has no
        area.
    """
    window, scaled = places.window[images], places.scaled[images]
    offset, canvas = places.offset[images], places.canvas[images]
    shifted = boxes - np.tile(window[:, :2], 2)
    cut = clip_boxes(shifted, window[:, 2], window[:, 3])
    # Multiplied first: the edge of the window then falls on the edge of the scaled image exactly.
    on_canvas = cut * np.tile(scaled, 2) / np.tile(window[:, 2:], 2) + np.tile(offset, 2)
    return on_canvas / np.tile(canvas, 2)


def have_area(boxes: Boxes) -> Mask:
    """Tell which boxes have an area: bool [N]. Those with a number that is none have not."""
    return np.asarray((boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1]))
