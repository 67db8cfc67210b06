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
import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.digests import sha256_hex
from shardmill.infra.format.features import Feature, KeyPoints
from shardmill.infra.format.known_features import (
    CORNER_FEATURE,
    POLYGON_FEATURES,
    keypoint_features,
)
from shardmill.infra.format.layout import encode_manifest, manifest_file
from tests.samples.preparing.prepared import run

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


def draw_shapes(folder: Path, root: Path, count: int = 12, *, partners: bool = True) -> None:
    """Prepare such pictures as the data set ``d``, and give its records the shapes."""
    folder.mkdir(parents=True)
    images, annotations, known = [], [], {}
    for number in range(count):
        drawn = shapes_of(number)
        point = drawn["points"][LEFT_EAR if number % 2 else NOSE]
        pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        pixels[..., 2] = filled([drawn["star"], drawn["hole"]], (HEIGHT, WIDTH))
        pixels[..., 1] = filled([drawn["corners"]], (HEIGHT, WIDTH))
        pixels[..., 0] = filled([point + np.array([[-3, -3], [-3, 3], [3, 3], [3, -3]])], (HEIGHT, WIDTH))
        pixels[0, 0] = number + 1, 0, 0  # or pictures were near-duplicates
        name = f"{number:03}.png"
        cv2.imwrite(str(folder / name), pixels)
        images.append({"id": number, "file_name": name, "height": HEIGHT, "width": WIDTH})
        for kind, ring in enumerate((drawn["star"], drawn["corners"])):
            (top, left), (bottom, right) = ring.min(0), ring.max(0)
            bbox = [left, top, right - left, bottom - top]
            annotations.append({"image_id": number, "category_id": kind, "bbox": bbox})
        known[name] = _features(drawn)
    categories = [{"id": 0, "name": "star"}, {"id": 1, "name": "bar"}]
    document = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "instances.json").write_text(json.dumps(document))
    run(
        folder,
        root,
        source={"kind": "coco", "objects": {"annotations": "instances.json"}},
        image={"resize": "none", "encoding": "png"},
        groups={"near_duplicates": False},
        splits={"train": 1.0, "validation": 0.0, "test": 0.0},
        shards={"num_shards": 2},
    )
    mirror = (0, 2, 1) if partners else None
    points = KeyPoints(names=NAMES, skeleton=((0, 1), (0, 2)), partners=mirror)
    _add(root, [*POLYGON_FEATURES, *keypoint_features(points), CORNER_FEATURE], known)


def _features(drawn: Mapping[str, Drawn]) -> dict[str, list[Any]]:
    size = np.array([HEIGHT, WIDTH])
    rings = [drawn["star"], drawn["hole"]]
    (top, left), (bottom, right) = drawn["star"].min(0), drawn["star"].max(0)
    box = np.array([[top, left], [top, right], [bottom, right], [bottom, left]])
    points = np.concatenate([drawn["points"], np.zeros((3, 2))])
    values = {
        "objects/polygons": np.concatenate(rings) / size,
        "objects/keypoints": points / size,
        "objects/corners": np.concatenate([box, drawn["corners"]]) / size,
    }
    counts = {
        "objects/ring_points": [len(ring) for ring in rings],
        "objects/rings": [2, 0],
        "objects/visibility": [2, 1, 2, 0, 0, 0],
    }
    return {**{name: points.astype(np.float32).ravel().tolist() for name, points in values.items()}, **counts}


def _add(root: Path, features: list[Feature], known: Mapping[str, Mapping[str, list[Any]]]) -> None:
    """Add features to the indexes of the only version, which readers take them from."""
    version, shards = Catalog(str(root)).open("d@1"), []
    for shard in version.manifest.shards:
        path = root / "d" / shard.index_path
        rows = pq.read_table(path)
        uris = rows["source_uri"].to_pylist()
        for one in features:
            column = pa.array([known[uri][one.name] for uri in uris], one.arrow_type)
            rows = rows.append_column(one.arrow_field(), column)
        pq.write_table(rows, path)
        data = path.read_bytes()
        new = {"index_bytes": len(data), "index_sha256": sha256_hex(data)}
        shards.append(shard.model_copy(update=new))
    every = [*version.manifest.extra_features, *features]
    manifest = version.manifest.model_copy(update={"shards": shards, "extra_features": every})
    (root / "d" / manifest_file(1)).write_bytes(encode_manifest(manifest))
