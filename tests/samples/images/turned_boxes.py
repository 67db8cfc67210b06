"""Turned rectangles on textured ground, with their corners: oriented boxes that are quick to learn."""

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

HEIGHT, WIDTH = 144, 192  # pixels
MOST_BEYOND = 8  # pixels that a rectangle may reach beyond the picture
CLASSES = {"bar": (2.5, 5.0), "tile": (1.0, 1.0)}  # sides of a rectangle: long one over short one
Corners = npt.NDArray[np.float64]


def turned(centre: Corners, sides: Corners, angle: float) -> Corners:
    """Return the corners of a rectangle in turn: [4, 2], y and x."""
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    corners: Corners = centre + np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * sides / 2 @ turn
    return corners


def draw_turned(folder: Path, root: Path, counts: Mapping[str, int], *, most: int = 3) -> None:
    """Prepare such pictures as the data set ``d``: {split: number of pictures}."""
    folder.mkdir(parents=True)
    images = {}
    for number in range(sum(counts.values())):
        pixels, found = picture(np.random.default_rng(number), most)
        cv2.imwrite(str(folder / f"{number:04}.png"), pixels)
        objects = [{"name": name, "corners": corners[:, ::-1].tolist()} for name, corners in found]
        images[f"{number:04}.png"] = {"size": [HEIGHT, WIDTH], "objects": objects}
    (folder / FILE).write_text(json.dumps({"images": images}))
    total = sum(counts.values())
    run(
        folder,
        root,
        source={"kind": KIND, "labels": "multi"},
        image={"resize": "none", "encoding": "png"},
        groups={"near_duplicates": False},
        splits={split: counts.get(split, 0) / total for split in ("train", "validation", "test")},
        shards={"num_shards": 2},
    )


def picture(
    chance: np.random.Generator, most: int
) -> tuple[npt.NDArray[np.uint8], list[tuple[str, Corners]]]:
    """One picture, and its rectangles, which do not meet: from none to ``most``."""
    coarse = chance.integers(60, 200, (HEIGHT // 16, WIDTH // 16, 3), dtype=np.uint8)
    pixels: Any = cv2.resize(coarse, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
    found: list[tuple[str, Corners]] = []
    for _ in range(int(chance.integers(0, 3 * most + 1))):
        name = str(chance.choice(list(CLASSES)))
        short, ratio = chance.uniform(14, 30), chance.uniform(*CLASSES[name])
        sides = np.array([min(short * ratio, 80), short])
        centre = chance.uniform([20, 20], [HEIGHT - 20, WIDTH - 20])
        corners = turned(centre, sides, chance.uniform(0, 2 * np.pi))
        apart = [np.abs(other.mean(axis=0) - centre).max() > 64 for _, other in found]
        beyond = np.maximum(-corners, corners - [HEIGHT, WIDTH]).max()
        if len(found) == most or not all(apart) or beyond > MOST_BEYOND:
            continue
        colour = chance.integers(0, 256, 3)
        colour[chance.integers(3)] = chance.choice([0, 255])  # stands out from the ground
        cv2.fillPoly(pixels, [np.rint(corners[:, ::-1]).astype(np.int32)], colour.tolist(), cv2.LINE_AA)
        found.append((name, corners))
    return pixels, found
