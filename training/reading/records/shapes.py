"""Polygons, key points and oriented boxes of the objects of a split, moved as their images are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs.polygons import cut_rings, reversed_rings
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.features import MISSING, Dtype, KeyPoints
from shardmill.infra.format.known_features import (
    CORNER_NUMBERS,
    CORNERS,
    KEYPOINTS,
    POLYGONS,
    RING_POINTS,
    RINGS,
    SHAPE_GROUPS,
    VISIBILITY,
)
from shardmill.training.arrays import Floats, Ints
from shardmill.training.augment.geometry import into_windows, mirroring, with_images
from shardmill.training.augment.kind import Sizes
from shardmill.training.augment.parameters import AugmentParameters
from shardmill.training.reading.records.columns import Padded, places_in, taken_from

Points = npt.NDArray[np.float32]  # [n, 2]: y, x


def read_with(names: Collection[str]) -> list[str]:
    """Return the features that are needed to move the shapes among ``names``."""
    return sorted(frozenset().union(*(group for group in SHAPE_GROUPS if group.intersection(names))))


def lists_of(values: npt.NDArray[Any], rows: Ints, count: int) -> Padded:
    """Return a list for each of ``count`` rows: ``values`` [n, ...] belong to ``rows`` [n], which rise."""
    kind: Dtype = "float32" if values.dtype == np.float32 else "int64"
    width = values[0].size if len(values) else 1
    lengths = np.bincount(rows, minlength=count).astype(np.int64) * width
    return Padded.of(values.reshape(-1).astype(kind), lengths, MISSING[kind])


@dataclass(frozen=True, slots=True)
class Views:
    """How the images of a batch are seen.

    Attributes:
        parameters: parameters of the augmentation of the images.
        heights, widths: of the stored images, [b] (pixels).
    """

    parameters: AugmentParameters
    heights: Sizes
    widths: Sizes

    def windows(self, points: npt.NDArray[np.floating], rows: Ints) -> Floats:
        """Return points of images relative to the windows: [n, 2]; ``rows`` [n] rise."""
        return _by_rows(
            points, rows, len(self.heights),
            lambda padded: into_windows(padded, self.parameters, self.heights, self.widths),
        )  # fmt: skip

    def images(self, points: Floats, rows: Ints) -> Floats:
        """Return points of windows as the images show them: [n, 2]."""
        return _by_rows(points, rows, len(self.heights), lambda padded: with_images(padded, self.parameters))

    def are_mirrored(self) -> npt.NDArray[np.bool_]:
        """Tell which images are mirrored, and not turned: bool [b]."""
        mirrored = np.zeros(len(self.heights), np.bool_)
        for _, found in mirroring(self.parameters):
            mirrored ^= found
        return mirrored


def _by_rows(points: npt.NDArray[np.floating], rows: Ints, count: int, move: Any) -> Floats:
    """Give points [n, 2] to a function of points [b, M, 2], and take them back."""
    lengths = np.bincount(rows, minlength=count)
    places = places_in(lengths)
    padded = np.zeros((count, int(lengths.max(initial=0)), 2))
    padded[rows, places] = points
    moved: Floats = move(padded)[rows, places]
    return moved


@dataclass(frozen=True, slots=True)
class Polygons:
    """The polygons of all objects of a split.

    Attributes:
        points: float32 [P, 2], y, x relative to the stored images.
        starts: int64 [R + 1], where the points of each ring begin.
        objects: int64 [N + 1], where the rings of each object begin.
    """

    points: Points
    starts: Ints
    objects: Ints

    @classmethod
    def of(cls, columns: Mapping[str, npt.NDArray[Any]]) -> Polygons:
        """Take them from the values of their features."""
        return cls(columns[POLYGONS].reshape(-1, 2), _starts(columns[RING_POINTS]), _starts(columns[RINGS]))

    def moved(self, objects: Ints, rows: Ints, views: Views) -> dict[str, Padded]:
        """Return the features of polygons, cut off at the edges of images: ``objects`` of ``rows``."""
        rings, per_object = taken_from(self.objects, objects)
        owners = np.repeat(np.arange(len(objects)), per_object)
        places, lengths = taken_from(self.starts, rings)
        of_point = np.repeat(rows[owners], lengths)
        # Cut before images are augmented too: what lies outside of the window is in no picture.
        points, lengths = cut_rings(views.windows(self.points[places], of_point), lengths)
        of_point = np.repeat(rows[owners], lengths)
        points, lengths = cut_rings(views.images(points, of_point), lengths)
        owners, lengths = owners[lengths > 0], lengths[lengths > 0]
        # So that outer rings turn the same way as before.
        points = reversed_rings(points, lengths, views.are_mirrored()[rows[owners]])
        count = len(views.heights)
        return {
            POLYGONS: lists_of(points.astype(np.float32), np.repeat(rows[owners], lengths), count),
            RING_POINTS: lists_of(lengths, rows[owners], count),
            RINGS: lists_of(np.bincount(owners, minlength=len(objects)), rows, count),
        }


@dataclass(frozen=True, slots=True)
class KeyPointsOfSplit:
    """The key points of all objects of a split.

    Attributes:
        points: float32 [N, K, 2], y, x relative to the stored images.
        visibility: int64 [N, K].
        partners: int64 [K], the point that each becomes in a mirror; None: not known.
    """

    points: npt.NDArray[np.float32]
    visibility: Ints
    partners: Ints | None

    @classmethod
    def of(cls, columns: Mapping[str, npt.NDArray[Any]], points: KeyPoints) -> KeyPointsOfSplit:
        """Take them from the values of their features; ``points``: as the manifest names them."""
        count, partners = len(points.names), points.partners
        return cls(
            columns[KEYPOINTS].reshape(-1, count, 2),
            columns[VISIBILITY].reshape(-1, count),
            None if partners is None else np.array(partners, np.int64),
        )

    def check_follow(self, parameters: AugmentParameters) -> None:
        """Check that the points of mirrored images have partners.

        Raises:
            ConfigError: they have none.
        """
        if self.partners is None and (found := mirroring(parameters)):
            names = " and ".join(name for name, _ in found)
            raise ConfigError(
                f"images are mirrored by {names}, and nothing tells which points are left and right",
                "turn that off, or name key points such as left_eye and right_eye when you prepare them",
            )

    def moved(self, objects: Ints, rows: Ints, views: Views) -> dict[str, Padded]:
        """Return the features of key points; those outside of their images are not visible."""
        self.check_follow(views.parameters)
        count = self.points.shape[1]
        of_point = np.repeat(rows, count)
        points = views.windows(self.points[objects].reshape(-1, 2), of_point)
        is_seen = _inside(points)
        points = views.images(points, of_point)
        is_seen &= _inside(points)
        visibility = np.where(is_seen.reshape(-1, count), self.visibility[objects], 0)
        points = points.reshape(-1, count, 2)
        if self.partners is not None:
            mirrored = views.are_mirrored()[rows]
            points[mirrored] = points[mirrored][:, self.partners]
            visibility[mirrored] = visibility[mirrored][:, self.partners]
        points[visibility == 0] = 0
        return {
            KEYPOINTS: lists_of(points.astype(np.float32), rows, len(views.heights)),
            VISIBILITY: lists_of(visibility, rows, len(views.heights)),
        }


def _inside(points: Floats) -> npt.NDArray[np.bool_]:
    return np.asarray(((points >= 0) & (points <= 1)).all(axis=1))


@dataclass(frozen=True, slots=True)
class Corners:
    """The oriented boxes of all objects of a split: float32 [N, 4, 2], relative to the stored images."""

    points: npt.NDArray[np.float32]

    def seen(self, objects: Ints, rows: Ints, views: Views) -> npt.NDArray[np.float32]:
        """Return the corners of objects of rows in their order, not cut: float32 [n, 8]."""
        of_point = np.repeat(rows, CORNER_NUMBERS // 2)
        points = views.windows(self.points[objects].reshape(-1, 2), of_point)
        return views.images(points, of_point).astype(np.float32).reshape(-1, CORNER_NUMBERS)

    def moved(self, objects: Ints, rows: Ints, views: Views) -> dict[str, Padded]:
        """Return the feature of corners."""
        return {CORNERS: lists_of(self.seen(objects, rows, views), rows, len(views.heights))}


def _starts(lengths: npt.NDArray[Any]) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
