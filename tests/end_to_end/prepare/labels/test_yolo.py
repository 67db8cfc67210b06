"""YOLO datasets through the whole of prepare: where their boxes end up in the stored images."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from shardmill.beam_jobs.sources.recognition.recognising import settled
from shardmill.infra.codecs.formats import apply_orientation
from shardmill.infra.dataset.catalog import Catalog
from tests.end_to_end.prepare.labels.test_objects import COLORS, NAMES, box_around, records
from tests.samples.images.photos import picture
from tests.samples.preparing.prepared import run
from tests.samples.sources.requests import asked

HEIGHT, WIDTH = 96, 160
BACK = {6: 8, 8: 6}  # orientation -> the one that undoes it, where it is another


def drawn(number: int, orientation: int, edges: tuple[int, int, int, int]) -> bytes:
    """An image file that is turned, whose box is drawn in the upright image."""
    pixels = picture(number + 1, HEIGHT, WIDTH) // 4 + 90
    top, left, bottom, right = edges
    pixels[top:bottom, left:right] = COLORS[NAMES[number % 3]]
    exif = Image.Exif()
    exif[0x0112] = orientation
    sink = io.BytesIO()
    turned = apply_orientation(pixels, BACK.get(orientation, orientation))
    Image.fromarray(np.ascontiguousarray(turned)).save(sink, "PNG", exif=exif)
    return sink.getvalue()


def write_dataset(folder: Path) -> Path:
    """Images of every orientation, half of them in each of two splits."""
    (folder / "data.yaml").parent.mkdir(parents=True)
    (folder / "data.yaml").write_text(f"train: images/train\nval: images/val\nnames: {list(NAMES)}\n")
    for orientation in range(1, 9):
        top, left, bottom, right = edges = (10 + orientation, 24, 50, 70)
        split = ("train", "val")[orientation % 2]
        for place in ("images", "labels"):
            (folder / place / split).mkdir(parents=True, exist_ok=True)
        image = drawn(orientation, orientation, edges)
        (folder / "images" / split / f"{orientation}.png").write_bytes(image)
        box = [
            (left + right) / 2 / WIDTH,
            (top + bottom) / 2 / HEIGHT,
            (right - left) / WIDTH,
            (bottom - top) / HEIGHT,
        ]
        row = " ".join(map(str, [orientation % 3, *box]))
        (folder / "labels" / split / f"{orientation}.txt").write_text(f"{row}\n")
    return folder


def test_boxes_are_of_upright_images(tmp_path: Path) -> None:
    source = write_dataset(tmp_path / "photos")
    config = settled(asked(source)).config.source.model_dump(exclude_defaults=True)
    run(
        source, tmp_path, source=config, image={"encoding": "png", "size": 48},
        groups={"near_duplicates": False}, shards={"num_shards": 1},
    )  # fmt: skip
    found = records(Catalog(str(tmp_path)).open("d"))
    assert len(found) == 8
    for record in found.values():
        (label,) = record["objects/label"]
        seen = box_around(record["pixels"], COLORS[NAMES[label]])
        np.testing.assert_allclose(record["objects/bbox"], seen, rtol=0, atol=1.5 / 28)
