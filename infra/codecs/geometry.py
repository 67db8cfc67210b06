"""The geometry of stored images: sizes, scaling without aliasing, and the places of boxes and points.

Both are placed by the size of the source, its EXIF orientation and the way in which images are stored: no
pixel is needed. Points are y, x, and boxes rows of ymin, xmin, ymax, xmax: edges, not centres of pixels, so
that a box over a whole image of height H and width W is 0, 0, H, W.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self, cast

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from shardmill.infra.codecs.formats import Pixels
from shardmill.infra.native.area import AreaAverage, area_average
from shardmill.infra.preparation import Resample, Sizing

Samples = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]
Boxes = npt.NDArray[np.float64]
Points = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
# Jobs decode one image a thread. OpenCV's own pool would compete with their threads.
cv2.setNumThreads(1)


@dataclass(frozen=True, slots=True)
class Geometry:
    """The steps from an upright image to the stored one: cut a window out, scale it, lay it on a canvas.

    Attributes:
        window: y, x, height, width in the image (pixels). y and x are even, so the cut runs between chroma
            samples of 4:2:0.
        scaled: height, width of the window after scaling (pixels).
        canvas: height, width of the stored image (pixels).
        offset: y, x of the scaled window on the canvas (pixels), both even.
    """

    window: tuple[int, int, int, int]
    scaled: tuple[int, int]
    canvas: tuple[int, int]
    offset: tuple[int, int]

    def keeps_all_of(self, height: int, width: int) -> bool:
        """Tell whether nothing of a picture of this size is cut off, and nothing is put around it."""
        return self.window == (0, 0, height, width) and self.canvas == self.scaled

    @property
    def picture(self) -> tuple[slice, slice]:
        """The rows and columns of the canvas that show the picture."""
        (top, left), (height, width) = self.offset, self.scaled
        return slice(top, top + height), slice(left, left + width)


def geometry(height: int, width: int, sizing: Sizing) -> Geometry:
    """Return the steps from an upright image of this size to the stored one.

    Without ``upscale`` nothing is enlarged: "pad" and "crop" lay a smaller image on the canvas unscaled.
    """
    if sizing.mode in ("pad", "crop"):
        return _exact(height, width, sizing)
    side = {"short": min, "long": max}.get(sizing.mode)
    ratio = sizing.height / side(height, width) if side else 1.0
    ratio = ratio if sizing.upscale else min(1.0, ratio)
    scaled = max(1, round(height * ratio)), max(1, round(width * ratio))
    return Geometry((0, 0, height, width), scaled, scaled, (0, 0))


def _exact(height: int, width: int, sizing: Sizing) -> Geometry:
    canvas = sizing.height, sizing.width
    ratios = sizing.height / height, sizing.width / width
    wanted = min(ratios) if sizing.mode == "pad" else max(ratios)
    ratio = wanted if sizing.upscale else min(1.0, wanted)
    window = height, width
    if sizing.mode == "crop":
        window = _within(canvas[0] / ratio, height), _within(canvas[1] / ratio, width)
    if sizing.mode == "crop" and ratio == wanted:
        scaled = canvas
    else:
        scaled = _within(window[0] * ratio, canvas[0]), _within(window[1] * ratio, canvas[1])
    return Geometry(
        (_centre(height - window[0]), _centre(width - window[1]), *window),
        scaled,
        canvas,
        (_centre(canvas[0] - scaled[0]), _centre(canvas[1] - scaled[1])),
    )


def _within(length: float, most: int) -> int:
    return max(1, min(most, round(length)))


def _centre(rest: int) -> int:
    return rest // 2 & ~1


def short_side_size(height: int, width: int, short_side: int) -> tuple[int, int]:
    """Return height and width after scaling the shorter side down to ``short_side``, without enlarging."""
    return geometry(height, width, Sizing("short", short_side, short_side)).scaled


def resize_short_side(pixels: Pixels, short_side: int) -> Pixels:
    """Shrink an image until its shorter side is ``short_side``, by area averaging, which cannot alias.

    Args:
        pixels: uint8 [H, W, C].
        short_side: pixels; smaller images are returned unchanged.

    Returns:
        uint8 [h, w, C].
    """
    return resize(pixels, short_side_size(pixels.shape[0], pixels.shape[1], short_side))


def resize(image: Pixels, size: tuple[int, int], resample: Resample = "area") -> Pixels:
    """Scale an image or a plane.

    Args:
        image: uint8 [H, W] or [H, W, C].
        size: new height and width (pixels).
        resample: "area" averages over the area that a new pixel covers, and interpolates linearly along sides
            that grow. "lanczos" is the filter of three lobes, widened by the ratio along sides that shrink.

    Returns:
        uint8 [h, w] or [h, w, C]; the image itself if it has that size.
    """
    if image.shape[:2] == size:
        return image
    scaled = _area(image, size) if resample == "area" else _lanczos(image, size)
    return scaled.reshape(*size, *image.shape[2:])


def halve(plane: Pixels) -> Pixels:
    """Average a plane (uint8 [H, W]) over 2×2 pixels, without the last row or column of an odd side."""
    height, width = plane.shape
    if height < 2 or width < 2:
        return resize(plane, (max(1, height // 2), max(1, width // 2)))
    even = plane[: height & ~1, : width & ~1]
    # OpenCV's kernel for exactly half the size is vectorised, and ten times as fast as any other.
    return cast(Pixels, cv2.resize(even, (width // 2, height // 2), interpolation=cv2.INTER_AREA))


def resize_samples(image: Samples, size: tuple[int, int], resample: Resample = "area") -> Samples:
    """Scale an image of any depth and number of channels, channel by channel, in floating point.

    Args:
        image: uint8, uint16 or float32 [H, W, C].
        size: new height and width (pixels).
        resample: as for ``resize``.

    Returns:
        [h, w, C] of the same type. Whole numbers are rounded, and do not leave their range.
    """
    if image.shape[:2] == size:
        return image
    scaled = np.empty((*size, image.shape[2]), image.dtype)
    for channel in range(image.shape[2]):
        plane = np.ascontiguousarray(image[:, :, channel], np.float32)
        made = _area_of_floats(plane, size) if resample == "area" else _lanczos_of_floats(plane, size)
        if image.dtype != np.float32:
            made = np.clip(np.rint(made), 0, np.iinfo(image.dtype).max)
        scaled[:, :, channel] = made
    return scaled


def _shrunk(shape: tuple[int, ...], size: tuple[int, int]) -> tuple[int, int]:
    """Return the size to which an image is averaged; sides that grow are interpolated from there.

    OpenCV's INTER_AREA averages only if neither side grows. Else it repeats pixels.
    """
    return min(size[0], shape[0]), min(size[1], shape[1])


def _area_of_floats(plane: Float32, size: tuple[int, int]) -> Float32:
    for wanted, how in ((_shrunk(plane.shape, size), cv2.INTER_AREA), (size, cv2.INTER_LINEAR)):
        if plane.shape != wanted:
            plane = cast(Float32, cv2.resize(plane, wanted[::-1], interpolation=how).reshape(wanted))
    return plane


def _lanczos_of_floats(plane: Float32, size: tuple[int, int]) -> Float32:
    return np.asarray(Image.fromarray(plane).resize(size[::-1], Image.Resampling.LANCZOS))


def _area(image: Pixels, size: tuple[int, int]) -> Pixels:
    shrunk = _shrunk(image.shape, size)
    if shrunk != image.shape[:2]:
        image = area_average(image, shrunk)
    if shrunk != size:
        image = cast(Pixels, cv2.resize(image, size[::-1], interpolation=cv2.INTER_LINEAR))
    return image


class AreaResize:
    """Scales an image that comes in bands of rows, as ``resize`` does by "area".

    Args:
        shape: H, W, C of the image.
        size: new height and width (pixels).
    """

    def __init__(self, shape: tuple[int, int, int], size: tuple[int, int]) -> None:
        self._size = size
        self._average = AreaAverage(shape, _shrunk(shape, size))

    def add(self, band: Pixels) -> None:
        """Add the next rows, uint8 [rows, W, C]."""
        self._average.add(band)

    def result(self) -> Pixels:
        """Return the image once all rows were added: uint8 [h, w, C]."""
        return resize(self._average.result(), self._size)


def _lanczos(image: Pixels, size: tuple[int, int]) -> Pixels:
    grey = image.ndim == 3 and image.shape[2] == 1
    picture = Image.fromarray(image[:, :, 0] if grey else image)
    return np.asarray(picture.resize(size[::-1], Image.Resampling.LANCZOS))


TRANSPOSED, UPSIDE_DOWN, MIRRORED = (5, 6, 7, 8), (3, 4, 7, 8), (2, 3, 6, 7)
MIRRORS = (2, 4, 5, 7)  # orientations that no turn alone makes upright


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
    return np.where(np.isin(orientations, TRANSPOSED)[:, np.newaxis], sizes[:, ::-1], sizes)


def turn_boxes_upright(boxes: Boxes, sizes: Int64, orientations: Int64) -> Boxes:
    """Turn boxes with their images.

    Args:
        boxes: float64 [N, 4], in pixels of the image as in the file.
        sizes: int64 [N, 2], height, width as in the file, of the image of each box.
        orientations: int64 [N], EXIF orientation of the image of each box.

    Returns:
        float64 [N, 4], in pixels of the upright image.
    """
    corners = [turn_points_upright(boxes[:, at : at + 2], sizes, orientations) for at in (0, 2)]
    return np.concatenate([np.minimum(*corners), np.maximum(*corners)], 1)


def turn_points_upright(points: Points, sizes: Int64, orientations: Int64) -> Points:
    """Turn points with their images: float64 [N, 2], in pixels of the upright image.

    Args:
        points: float64 [N, 2], y and x in pixels of the image as in the file.
        sizes: int64 [N, 2], height, width as in the file, of the image of each point.
        orientations: int64 [N], EXIF orientation of the image of each point.
    """
    turned = np.where(np.isin(orientations, TRANSPOSED)[:, np.newaxis], points[:, ::-1], points)
    are_far = np.stack([np.isin(orientations, UPSIDE_DOWN), np.isin(orientations, MIRRORED)], 1)
    return np.where(are_far, upright_sizes(sizes, orientations) - turned, turned)


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
    window = places.window[images]
    cut = clip_boxes(boxes - np.tile(window[:, :2], 2), window[:, 2], window[:, 3])
    corners = [on_canvas(cut[:, at : at + 2], places, images) for at in (0, 2)]
    return np.concatenate(corners, 1)


def on_canvas(points: Points, places: Places, images: Int64) -> Points:
    """Place points, also those beyond their window: float64 [N, 2], relative to the stored image.

    Args:
        points: float64 [N, 2], y and x in pixels of the window of their image.
        places: where each image lies in the stored one.
        images: int64 [N], the image of each point.
    """
    # Multiplied first: the edge of the window then falls on the edge of the scaled image exactly.
    scaled = points * places.scaled[images] / places.window[images, 2:]
    return (scaled + places.offset[images]) / places.canvas[images]


def have_area(boxes: npt.NDArray[np.floating[Any]]) -> Mask:
    """Tell which boxes have an area: bool [N]. Those with a number that is none have not."""
    return np.asarray((boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1]))
