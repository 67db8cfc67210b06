"""Where objects of annotated images lie in the stored images: boxes, points and polygons, many at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import ImageConfig
from shardmill.infra.codecs.geometry import (
    MIRRORS,
    Boxes,
    Places,
    Points,
    geometry,
    on_canvas,
    place_boxes,
    turn_boxes_upright,
    turn_points_upright,
    upright_sizes,
)
from shardmill.infra.codecs.polygons import cut_rings, reversed_rings

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Frames:
    """The images that boxes are of.

    Attributes:
        sizes: int64 [N, 2], height, width of each file, before it is turned upright; 1 if it is not known.
        orientations: int64 [N], EXIF orientation of each file.
        annotated: int64 [N, 2], height, width of the annotated image; 0 if it is not told.
        is_upright: bool [N], whether its boxes are of the upright image.
        fit: bool [N], whether the annotated image has the size of the file.
    """

    sizes: Int64
    orientations: Int64
    annotated: Int64
    is_upright: Mask
    fit: Mask

    @classmethod
    def of(cls, facts: pa.Table, annotated: Int64, *, upright: bool) -> Frames:
        """Compare the annotated sizes with those of the files: PLACED_FACTS_SCHEMA."""
        names = ("source_height", "source_width", "orientation")
        height, width, orientations = (
            pc.fill_null(facts[name], 1).to_numpy().astype(np.int64) for name in names
        )
        return cls.compared(np.stack([height, width], -1), orientations, annotated, upright=upright)

    @classmethod
    def compared(cls, sizes: Int64, orientations: Int64, annotated: Int64, *, upright: bool) -> Frames:
        """Compare annotated sizes with those of files; ``upright``: those without a size are upright."""
        is_told = annotated.any(1)
        as_file = ~is_told | (annotated == sizes).all(1)
        as_upright = ~is_told | (annotated == upright_sizes(sizes, orientations)).all(1)
        is_upright = as_upright if upright else as_upright & ~as_file
        return cls(sizes, orientations, annotated, is_upright, as_file | as_upright)


@dataclass(frozen=True)
class Placing:
    """Places what annotations have of N objects in the stored images of these.

    Attributes:
        frames: the images that the annotations are of.
        images: int64 [N], number in ``frames`` of the image of each object.
        places: where the images lie in the stored ones.
        of_place: int64 [N], number in ``places`` of the image of each object.
        relative: annotations are relative to their images, not in pixels.
    """

    frames: Frames
    images: Int64
    places: Places
    of_place: Int64
    relative: bool

    @classmethod
    def of(cls, frames: Frames, images: Int64, image: ImageConfig, *, relative: bool) -> Placing:
        """Return how the objects of images are placed; ``image`` says how images are stored."""
        sizing, used = image.sizing, np.unique(images)
        sizes = upright_sizes(frames.sizes[used], frames.orientations[used])
        places = Places.of(sizes, lambda height, width: geometry(height, width, sizing))
        return cls(frames, images, places, np.searchsorted(used, images), relative)

    def boxes(self, boxes: Boxes) -> Boxes:
        """Place a box of each object: float64 [N, 4], relative to the stored images."""
        sizes, orientations, is_upright, pixels = self._frames_of(slice(None))
        in_pixels = boxes * np.tile(pixels, 2)
        turned = turn_boxes_upright(in_pixels, sizes, orientations)
        return place_boxes(np.where(is_upright[:, np.newaxis], in_pixels, turned), self.places, self.of_place)

    def points(self, points: Points) -> tuple[Points, Mask]:
        """Place K points of each object: [N, K, 2] of the stored images, and which are in them [N, K]."""
        count = points.shape[1]
        of_points = np.repeat(np.arange(len(points)), count)
        in_window = self._in_window(points.reshape(-1, 2), of_points)
        at = self.of_place[of_points]
        are_in = ((in_window >= 0) & (in_window <= self.places.window[at, 2:])).all(1)
        return on_canvas(in_window, self.places, at).reshape(points.shape), are_in.reshape(-1, count)

    def rings(self, points: Points, counts: Int64, rings: Int64) -> tuple[Points, Int64, Int64]:
        """Place the rings of each object, and cut them off at the edges of the stored images.

        Args:
            points: float64 [P, 2], y and x.
            counts: int64 [R], number of points of each ring.
            rings: int64 [N], number of rings of each object.

        Returns:
            The same, relative to the stored images, without rings that these do not show.
        """
        of_ring = np.repeat(np.arange(len(rings)), rings)
        in_window = self._in_window(points, np.repeat(of_ring, counts))
        at = self.of_place[of_ring]
        cut, left = cut_rings(in_window, counts, 0.0, self.places.window[at, 2:])
        shown = left > 0
        images = self.images[of_ring]
        mirrors = np.isin(self.frames.orientations[images], MIRRORS) & ~self.frames.is_upright[images]
        cut = reversed_rings(cut, left, mirrors)  # outer rings turn the same way as before
        placed = on_canvas(cut, self.places, np.repeat(at, left))
        return placed, left[shown], np.bincount(of_ring[shown], minlength=len(rings))

    def part(self, start: int, stop: int) -> Placing:
        """Return how some of the objects are placed."""
        some = slice(start, stop)
        return replace(self, images=self.images[some], of_place=self.of_place[some])

    def _in_window(self, points: Points, objects: Int64) -> Points:
        """Return points of objects (int64 [P]) in pixels of the window of their upright images."""
        sizes, orientations, is_upright, pixels = self._frames_of(objects)
        in_pixels = points * pixels
        turned = turn_points_upright(in_pixels, sizes, orientations)
        upright = np.where(is_upright[:, np.newaxis], in_pixels, turned)
        return upright - self.places.window[self.of_place[objects], :2]

    def _frames_of(self, objects: Int64 | slice) -> tuple[Int64, Int64, Mask, Int64]:
        """Return size, orientation and is_upright of the image of objects, and pixels in a unit of points."""
        images, frames = self.images[objects], self.frames
        sizes, orientations, is_upright = (
            frames.sizes[images],
            frames.orientations[images],
            frames.is_upright[images],
        )
        if not self.relative:
            return sizes, orientations, is_upright, np.ones((1, 2), np.int64)
        upright = upright_sizes(sizes, orientations)
        return sizes, orientations, is_upright, np.where(is_upright[:, np.newaxis], upright, sizes)
