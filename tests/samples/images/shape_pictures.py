"""Pictures whose channels show the shapes of their objects, so that a picture tells where a shape went.

Each has two objects. Red shows the polygon of the first, with a hole; green the oriented box of the second;
blue a point of the first: its left ear, or in every other picture its nose.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from tests.samples.preparing.prepared import run
from tests.samples.sources.drawn_shapes import FILE, KIND

HEIGHT, WIDTH = 120, 168  # pixels
NAMES = ("nose", "left_ear", "right_ear")
LEFT_EAR, NOSE = 1, 0
Drawn = npt.NDArray[np.float64]


def shapes_of(number: int) -> dict[str, Drawn]:
    """The shapes of a picture in pixels, y, x: polygon, hole, points of the first; corners of the second."""
    chance = np.random.default_rng(number)
    middle = np.array([60.0, 44.0]) + chance.integers(-12, 13, 2)
    arms = -np.linspace(0, 2 * np.pi, 10, endpoint=False)
    reach = np.where(np.arange(10) % 2, 18, 38) * chance.uniform(0.8, 1.0, 10)
    star = middle + reach[:, np.newaxis] * np.stack([np.sin(arms), np.cos(arms)], 1)
    hole = middle + np.array([[-7, -7], [-7, 7], [7, 7], [7, -7]])  # turns the other way
    points = middle + np.array([[0, 0], [-14, -12], [-12, 14]])
    angle, centre = chance.uniform(0, np.pi), np.array([60.0, 124.0]) + chance.integers(-10, 11, 2)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    corners = centre + np.array([[-26, -10], [-26, 10], [26, 10], [26, -10]]) @ turn
    return {"star": np.rint(star), "hole": hole, "points": points, "corners": np.rint(corners)}


def filled(rings: list[Drawn], shape: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """A polygon as pixels: uint8 [H, W], 255 where rings turn around the middle of a pixel."""
    y, x = (np.arange(side) + 0.5 for side in shape)
    turns = np.zeros(shape, np.int64)
    for ring in rings:
        for (top, left), (bottom, right) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
            crossing = (y >= min(top, bottom)) & (y < max(top, bottom))
            at = left + (y[crossing] - top) / (bottom - top) * (right - left)
            turns[crossing] += np.where(x[np.newaxis] < at[:, np.newaxis], np.sign(bottom - top), 0).astype(
                int
            )
    return np.where(turns != 0, 255, 0).astype(np.uint8)


def draw_shapes(
    folder: Path,
    root: Path,
    count: int = 12,
    *,
    partners: bool = True,
    bars: bool = True,
    splits: tuple[float, float, float] = (1.0, 0.0, 0.0),
) -> None:
    """Prepare such pictures as the data set ``d``; without ``bars`` objects are the first ones alone."""
    folder.mkdir(parents=True)
    images = {}
    for number in range(count):
        drawn = shapes_of(number)
        point = drawn["points"][LEFT_EAR if number % 2 else NOSE]
        pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        pixels[..., 2] = filled([drawn["star"], drawn["hole"]], (HEIGHT, WIDTH))
        pixels[..., 1] = filled([drawn["corners"]], (HEIGHT, WIDTH))
        pixels[..., 0] = filled([point + np.array([[-3, -3], [-3, 3], [3, 3], [3, -3]])], (HEIGHT, WIDTH))
        pixels[0, 0] = number + 1, 0, 0  # or pictures were near-duplicates
        cv2.imwrite(str(folder / f"{number:03}.png"), pixels)
        images[f"{number:03}.png"] = {"size": [HEIGHT, WIDTH], "objects": _objects(drawn)[: 1 + bars]}
    mirror = [0, 2, 1] if partners else None
    points = {"star": {"names": NAMES, "skeleton": [[0, 1], [0, 2]], "partners": mirror}}
    (folder / FILE).write_text(json.dumps({"points": points, "images": images}))
    run(
        folder,
        root,
        source={"kind": KIND, "labels": "multi"},
        image={"resize": "none", "encoding": "png"},
        groups={"near_duplicates": False},
        splits=dict(zip(("train", "validation", "test"), splits, strict=True)),
        shards={"num_shards": 2},
    )


def _objects(drawn: Mapping[str, Drawn]) -> list[dict[str, Any]]:
    shown = {name: points[:, ::-1].tolist() for name, points in drawn.items()}  # x, y
    rings = {"rings": [shown["star"], shown["hole"]], "has_holes": True}
    points = {"keypoints": shown["points"], "visibility": [2, 1, 2]}
    return [{"name": "star", **rings, **points}, {"name": "bar", "corners": shown["corners"]}]
