"""Move boxes and masks with their images: window, resize, flips and turns. Pure functions, numpy only.

An image is cut to a window, resized to S × S pixels (``decode_window`` in
``shardmill.training.reading.decode``) and augmented (``augment_image``). Its annotation must follow. Both
functions take the parameters that the image was augmented with, so nothing is drawn here::

    parameters = draw_parameters(settings, seed, epoch, positions, heights, widths, image_size)
    moved = move_boxes(boxes, parameters, heights, widths)  # of a whole batch
    mask = move_mask(mask, parameters, row, image_size)  # of one image, its row in the batch

Without settings, ``draw_parameters`` gives the central square, or with ``fit="stretch"`` all of the image,
for tasks that must find objects anywhere in it.

A window of a large JPEG that is decoded at a fraction has its edges rounded, by at most a quarter of a pixel
of the new image; boxes and masks are not rounded with it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardmill.training.augment.kind import Array, Boxes, Points, Sizes
from shardmill.training.augment.parameters import AugmentParameters

# An object of which less is to be seen is left out: what is left of it can hardly be recognised.
LEAST_SHARE = 0.25


class MovedBoxes(NamedTuple):
    """The boxes of a batch after augmentation.

    Attributes:
        boxes: float32 [B, M, 4], relative to the new image, cut off at its edges; 0 where nothing was kept.
        kept: bool [B, M], where enough of a box is to be seen.
    """

    boxes: Boxes
    kept: npt.NDArray[np.bool_]


def move_boxes(
    boxes: Boxes,
    parameters: AugmentParameters,
    heights: Sizes,
    widths: Sizes,
    least_share: float = LEAST_SHARE,
) -> MovedBoxes:
    """Move the boxes of a batch with their images.

    Args:
        boxes: float32 [B, M, 4], relative to the stored images; rows without a box hold NaN.
        parameters: parameters of the augmentation of the images.
        heights: heights of the stored images, [B] (pixels).
        widths: widths of the stored images, [B] (pixels).
        least_share: the share of a box's area that must be inside of the window for it to be kept.
    """
    corners = boxes.reshape(len(boxes), -1, 2)
    edges = into_windows(corners, parameters, heights, widths).reshape(*boxes.shape[:2], 2, 2)
    cut = np.clip(edges, 0.0, 1.0)
    moved: npt.NDArray[np.floating] = cut.reshape(boxes.shape)
    for augmentation, drawn in parameters.images:
        moved = augmentation.move_boxes(moved, drawn)
    seen = np.clip(moved, 0.0, 1.0)
    area, visible = _areas(edges), _areas(cut)
    whole, left = (_areas(one.reshape(edges.shape)) for one in (moved, seen))
    with np.errstate(invalid="ignore"):
        kept = (visible > 0.0) & (left > 0.0) & (visible * left >= least_share * area * whole)
    seen = np.where(kept[..., np.newaxis], seen, 0.0)
    return MovedBoxes(seen.astype(np.float32), kept)


def into_windows(
    points: Points, parameters: AugmentParameters, heights: Sizes, widths: Sizes
) -> npt.NDArray[np.float64]:
    """Return points relative to the windows of their images: float64 [B, M, 2].

    Args:
        points: [B, M, 2], y and x relative to the stored images.
        parameters: parameters of the augmentation of the images.
        heights: heights of the stored images, [B] (pixels).
        widths: widths of the stored images, [B] (pixels).
    """
    windows = parameters.windows[:, np.newaxis, :].astype(np.float64)
    sides = np.stack([heights, widths], axis=1)[:, np.newaxis, :]
    moved: npt.NDArray[np.float64] = (points * sides - windows[..., :2]) / windows[..., 2:]
    return moved


def with_images(points: Points, parameters: AugmentParameters) -> Points:
    """Move points of windows as the augmentations of single images do: [B, M, 2]."""
    for augmentation, drawn in parameters.images:
        points = augmentation.move_points(points, drawn)
    return points


def mirroring(parameters: AugmentParameters) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    """Return the names of the augmentations that mirror images, and which images each mirrors: bool [B]."""
    found = []
    for augmentation, drawn in parameters.images:
        corners = np.tile(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), (len(parameters.windows), 1, 1))
        corner, down, right = np.moveaxis(augmentation.move_points(corners, drawn), 1, 0)
        (down_y, down_x), (right_y, right_x) = (down - corner).T, (right - corner).T
        mirrored = down_y * right_x < down_x * right_y
        if mirrored.any():
            found.append((augmentation.name, mirrored))
    return found


def move_mask(mask: Array, parameters: AugmentParameters, row: int, size: int) -> Array:
    """Move the mask of one image with it. Each new pixel takes the value below its centre.

    Args:
        mask: [H, W], of any type, as large as the stored image.
        parameters: parameters of the augmentation of a batch.
        row: the row of the image in the batch.
        size: height and width of the new mask, S (pixels).

    Returns:
        [S, S], of the same type: only values that the mask has.
    """
    top, left, height, width = parameters.windows[row].tolist()
    rows, columns = _nearest(top, height, size), _nearest(left, width, size)
    moved = mask[rows[:, np.newaxis], columns[np.newaxis, :]]
    for augmentation, drawn in parameters.images:
        moved = augmentation.move_mask(moved, drawn, row)
    return moved


def _areas(edges: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return the areas of boxes [B, M, 2, 2]: [B, M]."""
    sides = edges[:, :, 1] - edges[:, :, 0]
    return np.where((sides > 0).all(axis=-1), sides[..., 0] * sides[..., 1], 0.0)


def _nearest(start: int, length: int, size: int) -> npt.NDArray[np.int64]:
    """Return the stored pixels below the centres of new ones along one side: int64 [size]."""
    centres = 2 * np.arange(size, dtype=np.int64) + 1
    return start + centres * length // (2 * size)
