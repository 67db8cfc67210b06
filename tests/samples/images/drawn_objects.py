"""Shapes on textured ground, with their boxes as COCO JSON: a source for detection that is quick to learn.

street = draw_objects(folder, {"train": 400, "validation": 60, "test": 60})
prepare_version(JobRequest(source=str(folder), config=objects_config(...), ...))
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

SHAPES = ("circle", "square", "triangle")
HEIGHT, WIDTH = 144, 192  # pixels

Box = tuple[int, int, int, int]  # top, left, bottom, right edge (pixels)


def draw_objects(
    folder: Path,
    counts: Mapping[str, int],
    *,
    seed: int = 0,
    most: int = 4,
    sides: tuple[int, int] = (20, 72),
) -> Path:
    """Write pictures and a COCO file for each split: {split: number of pictures}.

    ``most``: objects of a picture, from 0 on; ``sides``: shortest and longest side of a box (pixels).
    """
    for split, number in counts.items():
        images, annotations = [], []
        (folder / split).mkdir(parents=True, exist_ok=True)
        for image in range(number):
            chance = np.random.default_rng([seed, sorted(counts).index(split), image])
            pixels, drawn = picture(chance, most, sides)
            name = f"{image:05}.jpg"
            cv2.imwrite(str(folder / split / name), pixels, [cv2.IMWRITE_JPEG_QUALITY, 92])
            images.append({"id": image, "file_name": name, "height": HEIGHT, "width": WIDTH})
            for shape, (top, left, bottom, right) in drawn:
                bbox = [left, top, right - left, bottom - top]
                annotations.append({"image_id": image, "category_id": SHAPES.index(shape), "bbox": bbox})
        categories = [{"id": number, "name": name} for number, name in enumerate(SHAPES)]
        document = {"images": images, "annotations": annotations, "categories": categories}
        (folder / "annotations").mkdir(exist_ok=True)
        (folder / "annotations" / f"{split}.json").write_text(json.dumps(document))
    return folder


def objects_config(splits: Iterable[str], **more: Any) -> dict[str, Any]:
    """The settings that prepare such a folder."""
    annotations = [{"file": f"annotations/{split}.json", "images": split, "split": split} for split in splits]
    return {
        "source": {"kind": "coco", "objects": {"annotations": annotations}},
        "image": {"resize": "none", **more.pop("image", {})},
        "groups": {"near_duplicates": False},
        "shards": {"num_shards": 2},
        **more,
    }


def picture(
    chance: np.random.Generator, most: int, sides: tuple[int, int]
) -> tuple[npt.NDArray[np.uint8], list[tuple[str, Box]]]:
    """One picture, and its shapes with their boxes, which do not meet."""
    coarse = chance.integers(60, 200, (HEIGHT // 16, WIDTH // 16, 3), dtype=np.uint8)
    pixels = cv2.resize(coarse, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC).astype(np.int16)
    pixels = np.clip(pixels + chance.integers(-20, 21, pixels.shape), 0, 255).astype(np.uint8)
    drawn: list[tuple[str, Box]] = []
    for _ in range(int(chance.integers(0, most + 1))):
        height, width = chance.integers(sides[0], sides[1] + 1, 2).tolist()
        top = int(chance.integers(0, HEIGHT - height + 1))
        left = int(chance.integers(0, WIDTH - width + 1))
        box = (top, left, top + height, left + width)
        if any(_meet(box, other) for _, other in drawn):
            continue
        shape = SHAPES[int(chance.integers(len(SHAPES)))]
        colour = chance.integers(0, 256, 3)
        colour[chance.integers(3)] = chance.choice([0, 255])  # stands out from the ground
        _draw(pixels, shape, box, colour.tolist())
        drawn.append((shape, box))
    return pixels, drawn


def _draw(pixels: npt.NDArray[np.uint8], shape: str, box: Box, colour: list[int]) -> None:
    top, left, bottom, right = box
    if shape == "square":
        cv2.rectangle(pixels, (left, top), (right - 1, bottom - 1), colour, cv2.FILLED)
    elif shape == "circle":
        middle = (int((left + right - 1) / 2), int((top + bottom - 1) / 2))
        axes = ((right - left - 1) // 2, (bottom - top - 1) // 2)
        cv2.ellipse(pixels, middle, axes, 0, 0, 360, colour, cv2.FILLED)
    else:
        corners = [((left + right - 1) // 2, top), (left, bottom - 1), (right - 1, bottom - 1)]
        cv2.fillPoly(pixels, [np.array(corners, np.int32)], colour)


def _meet(one: Box, other: Box) -> bool:
    return min(one[2], other[2]) > max(one[0], other[0]) and min(one[3], other[3]) > max(one[1], other[1])
