"""Polygons, masks and key points of COCO files, as pycocotools reads them, and panoptic files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as run_lengths
from pycocotools.coco import COCO

from shardmill.beam_jobs.sources.annotations.shapes import BAD_POINTS, BAD_RING, NO_POINT_NAMES
from shardmill.beam_jobs.sources.kinds import coco
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.infra.errors import ConfigError, NotFoundError
from shardmill.infra.format.features import features_in
from tests.unit.beam_jobs.sources.kinds.test_objects import (
    FILTERED,
    LOST,
    READ,
    configured,
    outcomes,
    with_images,
)

HEIGHT, WIDTH = 40, 56
POINTS = ("nose", "left_eye", "right_eye")
PERSON = {"id": 1, "name": "person", "keypoints": list(POINTS), "skeleton": [[1, 2], [1, 3]]}
DOG = {"id": 18, "name": "dog"}


def objects_of(listing: Listing, uri: str) -> list[dict[str, Any]]:
    """The objects of an image: box, name, rings (float [P, 2], y and x), key points (y, x, visibility)."""
    (row,) = (row for row in listing.table.to_pylist() if row["uri"] == uri)
    row = {name.removeprefix("feature:objects/"): value for name, value in row.items()}
    names, found = row["label"], []
    counts = row.get("rings") or [0] * len(names)
    rings = iter(row.get("ring_points") or [])
    points = iter(np.reshape(row.get("polygons") or [], (-1, 2)).tolist())
    places = np.reshape(row.get("keypoints") or [], (-1, 2))
    seen = np.reshape(row.get("visibility") or [], -1)
    per_object = len(seen) // max(1, len(names))
    for at, name in enumerate(names):
        own = slice(at * per_object, (at + 1) * per_object)
        found.append(
            {
                "name": name,
                "box": row["bbox"][4 * at : 4 * at + 4],
                "rings": [np.array([next(points) for _ in range(next(rings))]) for _ in range(counts[at])],
                "points": np.column_stack([places[own], seen[own]]),
            }
        )
    return found


def winding(rings: list[np.ndarray]) -> np.ndarray:
    """Winding number of the middle of each pixel."""
    turns = np.zeros((HEIGHT, WIDTH), int)
    rows, columns = np.arange(HEIGHT) + 0.5, np.arange(WIDTH) + 0.5
    for ring in rings:
        for (y, x), (to_y, to_x) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
            for row in np.flatnonzero((rows > min(y, to_y)) & (rows < max(y, to_y))):
                crossed = x + (rows[row] - y) / (to_y - y) * (to_x - x)
                turns[row, columns > crossed] += 1 if to_y > y else -1
    return turns


def blob(rng: np.random.Generator) -> np.ndarray:
    """A mask with several parts and holes."""
    coarse = rng.random((HEIGHT // 4, WIDTH // 4)) < 0.3
    mask = np.kron(coarse, np.ones((4, 4), bool))
    mask[rng.integers(HEIGHT), rng.integers(WIDTH)] ^= True
    return mask


def as_counts(mask: np.ndarray) -> list[int]:
    flat = mask.T.reshape(-1).astype(int)
    changes = np.flatnonzero(np.diff(flat)) + 1
    lengths = np.diff([0, *changes, flat.size]).tolist()
    return [0, *lengths] if flat[0] else lengths


def made_up(images: int) -> dict[str, Any]:
    """A file with objects of every form."""
    rng = np.random.default_rng(3)
    document: dict[str, Any] = {"images": [], "annotations": [], "categories": [PERSON, DOG]}
    for number in range(images):
        key = 1 + 7 * number  # ids with holes
        document["images"].append({"id": key, "file_name": f"{key}.jpg", "height": HEIGHT, "width": WIDTH})
        for form in rng.permutation(["polygon", "parts", "text", "counts"])[: number % 5].tolist():
            mask = blob(rng)
            packed = run_lengths.encode(np.asfortranarray(mask.astype(np.uint8)))
            x, y = rng.integers(0, 30, 2).tolist()
            ring = [x, y, x + 20.5, y + 1.25, x + 12, y + 9, x + 1.75, y + 8]
            segmentation = {
                "polygon": [ring],
                "parts": [ring, [1, 1, 1, 6.5, 9, 6]],
                "text": {"size": [HEIGHT, WIDTH], "counts": packed["counts"].decode()},
                "counts": {"size": [HEIGHT, WIDTH], "counts": as_counts(mask)},
            }[form]
            box = [x, y, 20.5, 9] if form in ("polygon", "parts") else run_lengths.toBbox(packed).tolist()
            entry = {
                "id": 100 + 3 * len(document["annotations"]),
                "image_id": key,
                "category_id": 1 if form in ("polygon", "text") else 18,
                "segmentation": segmentation,
                "bbox": box,
                "iscrowd": int(form == "counts"),
            }
            if entry["category_id"] == 1:
                entry["keypoints"] = [x, y, 2, x + 2.5, y + 3, 1, 0, 0, 0]
                entry["num_keypoints"] = 2
            document["annotations"].append(entry)
    return document


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_shapes_are_those_of_pycocotools(tmp_path: Path) -> None:
    document = made_up(9)
    (tmp_path / "t.json").write_text(json.dumps(document))
    judge = COCO(str(tmp_path / "t.json"))
    source = with_images(tmp_path, *(image["file_name"] for image in document["images"]))
    listing = coco.list_inputs(source, configured("coco", "t.json"))
    assert listing.warnings == []
    compared = 0
    for image in judge.loadImgs(judge.getImgIds()):
        entries = judge.loadAnns(judge.getAnnIds(imgIds=image["id"]))
        found = objects_of(listing, image["file_name"])
        assert len(found) == len(entries)
        for entry, one in zip(entries, found, strict=True):
            left, top, width, height = entry["bbox"]
            edges = np.clip([top, left, top + height, left + width], 0, [HEIGHT, WIDTH] * 2)
            np.testing.assert_allclose(one["box"], edges, rtol=1e-6)
            assert one["name"] == judge.loadCats(entry["category_id"])[0]["name"]
            wanted, turns = judge.annToMask(entry).astype(bool), winding(one["rings"])
            if isinstance(entry["segmentation"], dict):
                np.testing.assert_array_equal(turns != 0, wanted)
                assert set(np.unique(turns)) <= {0, 1} or set(np.unique(turns)) <= {0, -1}
            else:
                given = [np.reshape(part, (-1, 2))[:, ::-1] for part in entry["segmentation"]]
                assert [sorted(map(tuple, ring)) for ring in one["rings"]] == [
                    sorted(map(tuple, ring)) for ring in given
                ]
                differing = (turns != 0) ^ wanted  # pycocotools rounds the edges of polygons to pixels
                around = sum(np.abs(np.diff(ring, axis=0, append=ring[:1])).sum() for ring in given)
                assert np.count_nonzero(differing) <= around
            points = np.reshape(entry.get("keypoints", [0] * 9), (-1, 3))[:, [1, 0, 2]]
            np.testing.assert_array_equal(one["points"], points)
            compared += 1
    assert compared == len(document["annotations"]) > 12
    (points,) = (one.points for one in features_in(listing.table.schema) if one.points is not None)
    assert (points.names, points.skeleton) == (POINTS, ((0, 1), (0, 2)))
    assert points.partners == (0, 2, 1)


HOSTILE: list[dict[str, Any]] = [
    {"segmentation": [[1, 2, 3, 4]]},
    {"segmentation": [[1, 2, 3, 4, 5]]},
    {"segmentation": [[1, 2, 3, 4, None, 6]]},
    {"segmentation": [[1, 2, 3, 4, "5", 6]]},
    {"segmentation": "polygon"},
    {"segmentation": 7},
    {"segmentation": {"size": [HEIGHT, WIDTH], "counts": [1, 2]}},
    {"segmentation": {"size": [HEIGHT, WIDTH], "counts": [-1, HEIGHT * WIDTH + 1]}},
    {"segmentation": {"size": [HEIGHT, WIDTH], "counts": [10**400]}},
    {"segmentation": {"size": [WIDTH, HEIGHT], "counts": [HEIGHT * WIDTH]}},
    {"segmentation": {"size": [10**9, 10**9], "counts": [10**18]}},
    {"segmentation": {"size": [HEIGHT], "counts": []}},
    {"segmentation": {"counts": "abc"}},
    {"segmentation": {"size": [HEIGHT, WIDTH], "counts": "\u00e9"}},
    {"segmentation": {"size": [HEIGHT, WIDTH], "counts": "oooooooooooo"}},
    {"segmentation": {"size": [HEIGHT, WIDTH], "counts": None}},
    {"keypoints": [1, 2, 2]},
    {"keypoints": [1, 2, 3] * 3},
    {"keypoints": "none"},
    {"keypoints": [float("nan"), 2, 2] * 3},
]


def test_a_broken_shape_costs_itself_and_is_counted(tmp_path: Path) -> None:
    document = made_up(3)
    first = {"image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 20]}
    document["annotations"] += [{**first, **hostile} for hostile in HOSTILE]
    document["annotations"] += [
        {"image_id": 1, "category_id": 18, "keypoints": [1, 2, 2]},  # a class without names, and no box
        {"image_id": 1, "category_id": 1, "bbox": [1, 2], "segmentation": [[1, 2, 30, 2, 30, 9]]},
        {"image_id": 1, "category_id": 1, "segmentation": [[1, 2, 30, 2, 30, 9]]},  # the box is around it
        {"image_id": 1, "category_id": 1, "segmentation": [1, 2, 30, 2, 30, 9], "bbox": None},
        {"image_id": 1, "category_id": 1, "keypoints": [4, 5, 2, 9, 8, 1, 0, 0, 0]},
        {**first, "segmentation": []},
    ]
    (tmp_path / "t.json").write_text(json.dumps(document))
    source = with_images(tmp_path, "1.jpg", "8.jpg", "15.jpg")
    listing = coco.list_inputs(source, configured("coco", "t.json"))
    assert {
        uri: outcome for uri, outcome in outcomes(listing).items() if uri.endswith(".jpg")
    } == dict.fromkeys(("1.jpg", "8.jpg", "15.jpg"), (READ, None))
    found = objects_of(listing, "1.jpg")
    assert [len(one["rings"]) for one in found] == [0] * len(HOSTILE) + [1, 1, 0, 0]
    assert [one["box"] for one in found[-4:]] == [[2, 1, 9, 30]] * 2 + [[5, 4, 8, 9], [2, 1, 22, 31]]
    assert len(objects_of(listing, "15.jpg")) == 2
    words = " ".join(listing.warnings)
    first_at = len(made_up(3)["annotations"]) + 1
    for many in (
        "2 of 29 objects are left out",
        "10 run-length masks left out: 2 of another size than their image",
        f"2 of another size than their image (first annotation {first_at + 9} of t.json)",
        "2 polygons left out: 2 that are neither polygons nor run lengths",
        f"4 {BAD_RING} (first annotation {first_at} of t.json)",
        f"4 {BAD_POINTS} (first annotation {first_at + 16} of t.json)",
        f"1 {NO_POINT_NAMES} (first",
    ):
        assert many in words, listing.warnings


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_key_points_and_captions_join_the_objects_of_other_files(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    document = made_up(6)
    pointed = [entry for entry in document["annotations"] if "keypoints" in entry]
    others = [
        {name: value for name, value in entry.items() if name != "keypoints"}
        for entry in document["annotations"]
    ]
    moved = {**pointed[-1], "bbox": [0, 0, 9, 9]}
    more = {**pointed[0], "bbox": [2, 2, 5, 5]}  # of an id that is there already
    files = {
        "instances.json": {
            **document,
            "annotations": others,
            "categories": [{"id": 1, "name": "person"}, DOG],
        },
        "points.json": {**document, "annotations": [*pointed[:-1], moved, more], "categories": [PERSON]},
        "captions.json": {
            "images": document["images"],
            "annotations": [{"image_id": 8, "id": at, "caption": text} for at, text in enumerate("ab")],
        },
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    source = with_images(tmp_path, *(image["file_name"] for image in document["images"]))
    parts = [{"file": list(files)[at]} for at in order]
    listing = coco.list_inputs(source, configured("coco", parts))
    reasons = {uri: reason for uri, (status, reason) in outcomes(listing).items() if status == LOST}
    assert reasons == {f"{moved['image_id']}.jpg": "contradicting_rows"}
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "t.json").write_text(json.dumps(document))
    alone = coco.list_inputs(
        with_images(whole, *(image["file_name"] for image in document["images"])),
        configured("coco", "t.json"),
    )
    for image in document["images"]:
        if image["id"] == moved["image_id"]:
            continue
        found, wanted = (objects_of(each, image["file_name"]) for each in (listing, alone))
        added = found[len(wanted) :]
        assert [one["box"] for one in added] == [[2, 2, 7, 7]] * (image["id"] == more["image_id"])
        for one, other in zip(found, wanted, strict=False):
            assert (one["name"], one["box"]) == (other["name"], other["box"])
            np.testing.assert_array_equal(one["points"], other["points"])
    texts = dict(
        zip(listing.table["uri"].to_pylist(), listing.table["feature:captions"].to_pylist(), strict=True)
    )
    assert texts["8.jpg"] == ["a", "b"]


def panoptic(folder: Path, **changed: Any) -> dict[str, Any]:
    """A panoptic file of two images; returns the masks of its segments by their ids."""
    numbers = np.zeros((HEIGHT, WIDTH), np.int64)
    numbers[5:20, 10:30] = 70_000
    numbers[8:12, 14:18] = 0
    numbers[25:, :] = 300
    numbers[0, 0] = 300
    numbers[2, 50:] = 5
    numbers[2, 40] = 77
    pixels = np.stack([numbers % 256, numbers // 256 % 256, numbers // 65536], -1).astype(np.uint8)
    (folder / "annotations/panoptic_val").mkdir(parents=True)
    for name in ("a.png", "b.png"):
        Image.fromarray(pixels).save(folder / "annotations/panoptic_val" / name)
    segments = [
        {"id": 70_000, "category_id": 18, "bbox": [10, 5, 20, 15], "iscrowd": 1},
        {"id": 300.0, "category_id": 1},
        {"id": 5, "category_id": 99},
        {"id": 6, "category_id": 1},
        {"id": 300, "category_id": 1},
        "no segment",
    ]
    document = {
        "images": [
            {"id": 1, "file_name": "a.jpg", "height": HEIGHT, "width": WIDTH},
            {"id": 2, "file_name": "b.jpg"},
            {"id": 3, "file_name": "c.jpg", "height": HEIGHT, "width": WIDTH},
        ],
        "annotations": [
            {"image_id": 1, "file_name": "a.png", "segments_info": segments},
            {"image_id": 2, "file_name": "b.png", "segments_info": segments[:2]},
            {"image_id": 3, "file_name": "c.png", "segments_info": segments[:1]},
            {"image_id": 4, "file_name": "a.png", "segments_info": segments[:1]},
            {"image_id": 5, "file_name": "../a.png\ud800", "segments_info": segments[:1]},
        ],
        "categories": [PERSON, DOG],
    } | changed
    (folder / "annotations/panoptic_val.json").write_text(json.dumps(document))
    return {"dog": numbers == 70_000, "person": numbers == 300}


def test_segments_of_panoptic_files_are_objects(tmp_path: Path) -> None:
    masks = panoptic(tmp_path)
    source = with_images(tmp_path, "val/a.jpg", "val/b.jpg", "val/c.jpg")
    part = {"file": "annotations/panoptic_val.json", "images": "val"}
    listing = coco.list_inputs(source, configured("coco", part))
    found = objects_of(listing, "val/a.jpg")
    assert [one["name"] for one in found] == ["dog", "person"]
    for one in found + objects_of(listing, "val/b.jpg"):
        np.testing.assert_array_equal(winding(one["rings"]) != 0, masks[one["name"]])
    assert [one["box"] for one in found] == [[5, 10, 20, 30], [0, 0, HEIGHT, WIDTH]]
    row = next(row for row in listing.table.to_pylist() if row["uri"] == "val/b.jpg")
    assert row["feature:objects/annotated_size"] == [HEIGHT, WIDTH], "as the PNG has it"
    assert row["feature:objects/num_left_out"] == 2
    lost = {row["uri"]: row["message"] for row in listing.table.to_pylist() if row["status"] == LOST}
    assert list(lost) == ["annotations/panoptic_val.json#image=3"]
    assert "its segments: no such file" in lost["annotations/panoptic_val.json#image=3"]
    for name in ("a", "b"):
        assert outcomes(listing)[f"annotations/panoptic_val/{name}.png"] == (FILTERED, "table")
    words = " ".join(listing.warnings)
    assert "7 of 11 objects are left out" in words
    assert "3 whose pixels no entry names (first annotation 1 of annotations/panoptic_val.json: 77)" in words
    assert "2 without a pixel (first annotation 1 of annotations/panoptic_val.json: 6)" in words
    assert "2 segment lists left out: 2 of an unknown image" in words


def test_png_files_of_segments_that_are_no_such_are_told(tmp_path: Path) -> None:
    panoptic(tmp_path)
    folder = tmp_path / "annotations/panoptic_val"
    source = with_images(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    Image.fromarray(np.zeros((HEIGHT, WIDTH), np.uint8)).save(folder / "b.png")
    Image.fromarray(np.zeros((HEIGHT, WIDTH - 1, 3), np.uint8)).save(folder / "c.png")
    listing = coco.list_inputs(source, configured("coco", "annotations/panoptic_val.json"))
    lost = [row["message"] for row in listing.table.to_pylist() if row["status"] == LOST]
    assert ["their file is not in colour" in lost[0], "40 x 55 pixels" in lost[1]] == [True, True]
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(NotFoundError, match=r"the PNG files of annotations/panoptic_val\.json are not there"):
        coco.list_inputs(source, configured("coco", "annotations/panoptic_val.json"))


@pytest.mark.parametrize(
    ("points", "skeleton", "pairs", "words"),
    [
        (
            ["a", "b"],
            [[1, 2], [0, 1], [1, 3], [1, 1.5], [1], "x", [math.inf, 1]],
            ((0, 1),),
            "have a skeleton",
        ),
        (["a", "b"], 5, (), "have a skeleton that joins other than two of them"),
        (["a", "a"], [], None, "are no list of different names"),
        (["a", 1], [], None, "are no list of different names"),
        ("ab", [], None, "are no list of different names"),
    ],
)
def test_broken_names_of_key_points_are_told(
    tmp_path: Path, points: Any, skeleton: Any, pairs: Any, words: str
) -> None:
    source = with_images(tmp_path, "a.jpg")
    category = {"id": 1, "name": "person", "keypoints": points, "skeleton": skeleton}
    entry = {"image_id": 1, "category_id": 1, "bbox": [1, 1, 9, 9], "keypoints": [1, 1, 2, 3, 3, 2]}
    images = [{"id": 1, "file_name": "a.jpg"}]
    document = {"images": images, "annotations": [entry], "categories": [category]}
    (tmp_path / "t.json").write_text(json.dumps(document))
    listing = coco.list_inputs(source, configured("coco", "t.json"))
    found = [one.points for one in features_in(listing.table.schema) if one.points is not None]
    assert [one.skeleton for one in found] == ([] if pairs is None else [pairs])
    assert words in " ".join(listing.warnings)


def test_other_key_points_of_a_class_are_refused(tmp_path: Path) -> None:
    source = with_images(tmp_path, "a.jpg")
    for name, points in (("a", ["nose"]), ("b", ["ear"])):
        images = [{"id": 1, "file_name": "a.jpg"}]
        category = {"id": 1, "name": "person", "keypoints": points}
        (tmp_path / f"{name}.json").write_text(
            json.dumps({"images": images, "annotations": [], "categories": [category]})
        )
    with pytest.raises(ConfigError, match="different key points"):
        coco.list_inputs(source, configured("coco", "*.json"))
