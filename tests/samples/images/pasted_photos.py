"""Photographs pasted on photographs, with boxes as COCO JSON and with masks: real pixels to learn from.

Each picture is a blurred photograph with one to three others on it, each cut out as an ellipse. The class of
an object is the folder of its photograph; everything else is background.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

HEIGHT, WIDTH = 192, 256  # pixels
_SIDES = (56, 120)  # shortest and longest side of an object (pixels)

Pixels = npt.NDArray[np.uint8]


def paste_photos(
    photos: Path, folder: Path, classes: Sequence[str], counts: Mapping[str, int], seed: int = 0
) -> Path:
    """Write ``images/SPLIT``, ``masks/SPLIT`` and ``annotations/SPLIT.json`` for each split.

    Args:
        photos: a folder for each split (train, validation, test) with a folder for each class.
        folder: written.
        classes: those that are pasted; their masks have the values 1, 2 and so on, and the background 0.
        counts: split -> number of pictures.
        seed: of all chance.
    """
    for split, count in counts.items():
        sources = [sorted((photos / split / name).glob("*.jp*g")) for name in classes]
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for part in ("images", "masks"):
            (folder / part / split).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            chance = np.random.default_rng([seed, sorted(counts).index(split), number])
            pixels, mask, boxes = _picture(chance, sources)
            name = f"{split}-{number:04}"
            cv2.imwrite(
                str(folder / "images" / split / f"{name}.jpg"), pixels, [cv2.IMWRITE_JPEG_QUALITY, 92]
            )
            cv2.imwrite(str(folder / "masks" / split / f"{name}.png"), mask)
            images.append({"id": number, "file_name": f"{name}.jpg", "height": HEIGHT, "width": WIDTH})
            annotations += [{"image_id": number, "category_id": kind, "bbox": box} for kind, box in boxes]
        document = {
            "images": images,
            "annotations": annotations,
            "categories": [{"id": kind, "name": name} for kind, name in enumerate(classes, 1)],
        }
        (folder / "annotations").mkdir(exist_ok=True)
        (folder / "annotations" / f"{split}.json").write_text(json.dumps(document))
    return folder


def _picture(
    chance: np.random.Generator, sources: Sequence[Sequence[Path]]
) -> tuple[Pixels, Pixels, list[tuple[int, list[int]]]]:
    """Return a picture, its mask, and class and box (left, top, width, height) of each object."""
    ground = _photo(chance, [path for paths in sources for path in paths])
    pixels = cv2.GaussianBlur(cv2.resize(ground, (WIDTH, HEIGHT)), (0, 0), 9)
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    boxes: list[tuple[int, list[int]]] = []
    for _ in range(int(chance.integers(1, 4))):
        kind = int(chance.integers(len(sources)))
        height, width = chance.integers(*_SIDES, 2, endpoint=True).tolist()
        top, left = int(chance.integers(HEIGHT - height)), int(chance.integers(WIDTH - width))
        if mask[top : top + height, left : left + width].any():
            continue  # so that no object hides another
        shape = np.zeros((height, width), np.uint8)
        cv2.ellipse(shape, (width // 2, height // 2), (width // 2, height // 2), 0, 0, 360, 1, -1)
        shown = cv2.resize(_photo(chance, sources[kind]), (width, height), interpolation=cv2.INTER_AREA)
        window = np.s_[top : top + height, left : left + width]
        pixels[window] = np.where(shape[:, :, np.newaxis] > 0, shown, pixels[window])
        mask[window][shape > 0] = kind + 1
        boxes.append((kind + 1, [left, top, width, height]))
    return pixels, mask, boxes


def _photo(chance: np.random.Generator, paths: Sequence[Path]) -> Pixels:
    found = cv2.imread(str(paths[int(chance.integers(len(paths)))]), cv2.IMREAD_REDUCED_COLOR_2)
    assert found is not None
    return np.asarray(found, np.uint8)
