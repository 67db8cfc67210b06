"""Texts and JSON files of well-known data sets: where their objects lie, and what is wrong in them."""

from __future__ import annotations

import base64
import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_masks

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.box_files import list_inputs
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.infra.errors import ConfigError
from tests.samples.images.photos import write

# The file "note" and its ending -> what it holds; the box is left 2, top 1, right 6, bottom 4.
BOXES: dict[str, tuple[str, Any]] = {
    "DOTA": (".txt", "imagesource:GoogleEarth\ngsd:0.1\n2 1 6 1 6 4 2 4 car 0\n"),
    "DOTA of Roboflow": (".txt", "2 1 6 1 6 4 2 4 car 0\r\n"),
    "KITTI": (".txt", "car 0.00 0 -1.57 2.00 1.00 6.00 4.00 2.8 2.6 12.3 0.4 1.4 69.4 -1.5\n"),
    "VisDrone": (".txt", "2,1,4,3,1,4,0,0,\n"),
    "WIDER FACE": (".txt", "note.jpg\n1\n2 1 4 3 0 0 0 0 0 0 \n"),
    "BDD100K": (
        ".json",
        [{"name": "note.jpg", "labels": [
            {"category": "car", "box2d": {"x1": 2, "y1": 1, "x2": 5, "y2": 3}}]}],
    ),
    "Scalabel": (
        ".json",
        {"frames": [{"name": "note.jpg", "labels": [{"category": "car", "poly2d": [
            {"vertices": [[2, 1], [6, 1], [6, 4], [2, 4]], "types": "LLLL", "closed": True}]}]}]},
    ),
    "CreateML": (
        ".json",
        [{"image": "note.jpg", "annotations": [
            {"label": "car", "coordinates": {"x": 4, "y": 2.5, "width": 4, "height": 3}}]}],
    ),
    "CrowdHuman": (".odgt", {"ID": "note", "gtboxes": [
        {"tag": "car", "fbox": [2, 1, 4, 3], "hbox": [0, 0, 1, 1]}]}),
    "Datumaro": (
        ".json",
        {"categories": {"label": {"labels": [{"name": "car"}]}}, "items": [
            {"id": "note", "annotations": [{"type": "bbox", "label_id": 0, "bbox": [2, 1, 4, 3]}]}]},
    ),
    "Labelbox": (
        ".ndjson",
        {"data_row": {"external_id": "note.jpg"}, "projects": {"p": {"labels": [{"annotations": {"objects": [
            {"name": "car", "polygon": [{"x": x, "y": y} for x, y in ((2, 1), (6, 1), (6, 4), (2, 4))]},
        ]}}]}}},
    ),
    "Supervisely": (
        ".json",
        {"size": {"height": 8, "width": 8}, "tags": [], "objects": [
            {"classTitle": "car", "geometryType": "rectangle", "points": {"exterior": [[5, 3], [2, 1]]}}]},
    ),
    "TT100K": (
        ".json",
        {"imgs": {"1": {"path": "note.jpg", "objects": [
            {"category": "car", "bbox": {"xmin": 2, "ymin": 1, "xmax": 6, "ymax": 4}}]}}},
    ),
    "VoTT": (
        ".json",
        {"assets": {"1": {"asset": {"name": "note.jpg"}, "regions": [
            {"type": "RECTANGLE", "tags": ["car"],
             "boundingBox": {"left": 2, "top": 1, "width": 4, "height": 3}}]}}},
    ),
}  # fmt: skip
OTHER_NAMES = {"WIDER FACE": "face"}


def listed(folder: Path, ending: str, content: Any, **source: Any) -> Listing:
    text = content if isinstance(content, str) else json.dumps(content)
    write(folder, {"note.jpg": b"", f"note{ending}": text.encode()})
    settings = {"kind": "box_files", "objects": {"annotations": f"*{ending}"}, **source}
    return list_inputs(SourceFolder(str(folder)), PrepareConfig.model_validate({"source": settings}))


def noted(listing: Listing, uri: str = "note.jpg") -> dict[str, Any]:
    """The features of the objects of an image, and why it is not used."""
    (row,) = (row for row in listing.table.to_pylist() if row["uri"] == uri)
    found = {name.removeprefix("feature:objects/"): value for name, value in row.items()}
    return {**found, "reason": row["reason"]}


@pytest.mark.parametrize("name", BOXES)
def test_where_the_objects_lie(name: str, tmp_path: Path) -> None:
    found = noted(listed(tmp_path, *BOXES[name]))
    assert found["reason"] is None
    assert found["bbox"] == [1.0, 2.0, 4.0, 6.0]
    assert found["label"] == [OTHER_NAMES.get(name, "car")]
    assert found["is_crowd"] == [0]


def test_corners_of_oriented_boxes_and_difficult_objects(tmp_path: Path) -> None:
    found = noted(listed(tmp_path, ".txt", "4 1 7 4 4 7 1 4 plane 0\n1.5 1 3 1 3 2 1.5 2 small-vehicle 1\n"))
    assert found["corners"] == [1, 4, 4, 7, 7, 4, 4, 1, 1, 1.5, 1, 3, 2, 3, 2, 1.5]
    assert found["bbox"] == [1, 1, 7, 7, 1, 1.5, 2, 3]
    assert found["label"] == ["plane", "small-vehicle"]
    assert found["is_crowd"] == [0, 1]


def test_run_lengths_are_those_of_pycocotools(tmp_path: Path) -> None:
    mask = np.zeros((8, 8), np.uint8, order="F")
    mask[1:4, 2:6] = 1
    mask[6, 7] = 1
    run_lengths = coco_masks.encode(mask)
    entry = {"bbox": [2, 1, 6, 6], "predicted_iou": 0.9,
             "segmentation": {"size": [8, 8], "counts": run_lengths["counts"].decode()}}  # fmt: skip
    image = {"width": 8, "height": 8, "file_name": "note.jpg"}
    found = noted(listed(tmp_path, ".json", {"image": image, "annotations": [entry]}))
    assert found["label"] == ["object"]
    points = np.array(found["polygons"], np.float64).reshape(-1, 2)
    assert np.array_equal(drawn(points, found["ring_points"], (8, 8)), mask)


def test_bitmaps_of_supervisely(tmp_path: Path) -> None:
    shown = np.array([[0, 1, 1], [1, 0, 1]], np.uint8)
    picture = Image.fromarray(shown)  # as its SDK writes them
    picture.putpalette([0, 0, 0, 255, 255, 255])
    sink = io.BytesIO()
    picture.save(sink, "PNG", transparency=0)
    good = base64.b64encode(zlib.compress(sink.getvalue())).decode()
    bitmaps = [{"data": good, "origin": [4, 2]}, {"data": good}, {"data": "eJw", "origin": [0, 0]}, {}]
    objects = [{"classTitle": "car", "geometryType": "bitmap", "bitmap": one} for one in bitmaps]
    document = {"size": {"height": 8, "width": 8}, "tags": [{"name": "night"}], "objects": objects}
    listing = listed(tmp_path, ".json", document)
    found = noted(listing)
    assert found["num_left_out"] == 3
    expected = np.zeros((8, 8), bool)
    expected[2:4, 4:7] = shown
    points = np.array(found["polygons"], np.float64).reshape(-1, 2)
    assert np.array_equal(drawn(points, found["ring_points"], (8, 8)), expected)
    assert "1 tag left out" in " ".join(listing.warnings)


def test_holes_of_polygons(tmp_path: Path) -> None:
    outer, hole = [[0, 0], [8, 0], [8, 8], [0, 8]], [[2, 2], [6, 2], [6, 6], [2, 6]]
    for one, other in ((outer, hole), (outer[::-1], hole), (outer, hole[::-1])):
        polygon = {
            "classTitle": "car",
            "geometryType": "polygon",
            "points": {"exterior": one, "interior": [other]},
        }
        document = {"size": {"height": 8, "width": 8}, "tags": [], "objects": [polygon]}
        found = noted(listed(tmp_path, ".json", document))
        points = np.array(found["polygons"], np.float64).reshape(-1, 2)
        covered = drawn(points, found["ring_points"], (8, 8))
        assert covered.sum() == 48
        assert not covered[2:6, 2:6].any()


def drawn(points: np.ndarray, counts: list[int], size: tuple[int, int]) -> np.ndarray:
    """The pixels whose middle the rings turn around: the winding number, summed over the edges."""
    y, x = np.meshgrid(*(np.arange(side) + 0.5 for side in size), indexing="ij")
    winding = np.zeros(size, int)
    for ring in np.split(points, np.cumsum(counts)[:-1]):
        for (y0, x0), (y1, x1) in zip(ring, np.roll(ring, -1, 0), strict=True):
            crosses = (y0 <= y) != (y1 <= y)
            at = x0 + (y - y0) * (x1 - x0) / (y1 - y0 if y1 != y0 else 1)
            winding += np.where(crosses & (x < at), np.sign(y1 - y0), 0).astype(int)
    return winding != 0


def test_what_is_no_object_is_counted(tmp_path: Path) -> None:
    lane = {"category": "lane", "poly2d": [{"vertices": [[1, 1], [2, 2]], "types": "LL", "closed": False}]}
    curve = {"category": "area", "poly2d": [{"vertices": [[1, 1]] * 4, "types": "LCCC", "closed": True}]}
    car = {"category": "car", "box2d": {"x1": 1, "y1": 1, "x2": "x", "y2": 3}}
    good = {"category": "car", "box2d": {"x1": 1, "y1": 1, "x2": 3, "y2": 3}, "attributes": {"crowd": True}}
    frame = {
        "name": "note.jpg",
        "labels": [lane, curve, car, {"category": "tag"}, 7, good, {"box2d": good["box2d"]}],
    }
    listing = listed(tmp_path, ".json", [frame])
    assert noted(listing)["is_crowd"] == [1]
    assert noted(listing)["num_left_out"] == 2
    text = " ".join(listing.warnings)
    assert "2 of 3 objects are left out: 1 without a class" in text
    assert "2 lines left out" in text
    assert "2 further labels left out" in text


def test_broken_lines_and_files_cost_themselves(tmp_path: Path) -> None:
    write(tmp_path, {"a.jpg": b"", "a.txt": b"\n", "b.jpg": b"", "b.txt": b"a b c\n", "c.jpg": b""})
    write(tmp_path, {"c.txt": b"\xff\xfe" + b"1,1,2,2,1,4,0,0\n", "gone.txt": b"1,1,2,2,1,4,0,0\n"})
    listing = listed(tmp_path, ".txt", "1,1,2,2,1,4,0,0\n1,1,x,2,1,4,0,0\n1,2\n3,3,2,2,0,1,0,0\n")
    assert noted(listing)["bbox"] == [1, 1, 3, 3]
    assert noted(listing)["num_left_out"] == 2
    assert noted(listing, "a.jpg")["bbox"] == []
    reasons = {row["uri"]: row["reason"] for row in listing.table.to_pylist()}
    assert reasons["b.txt#image=1"] == reasons["c.txt#image=1"] == "broken_row"
    assert reasons["gone.txt#image=1"] == "missing_file"


def test_faces_without_the_line_of_zeros(tmp_path: Path) -> None:
    write(tmp_path, {"p/2.jpg": b""})
    listing = listed(tmp_path, ".txt", "p/2.jpg\n0\nnote.jpg\n2\n1 1 2 2 0 0 0 1 0 0\n2 2 0 0 0 0 0 0 0 0\n")
    assert noted(listing, "p/2.jpg")["bbox"] == []
    assert noted(listing)["is_crowd"] == [1], "the other one has no area"
    with pytest.raises(ConfigError, match="the number of faces of 'b\\.jpg' is missing"):
        listed(tmp_path, ".txt", "note.jpg\n1\n1 1 2 2 0 0 0 0 0 0\nb.jpg\nc.jpg\n")


def test_an_image_that_was_labelled_twice_is_not_used(tmp_path: Path) -> None:
    note = {"name": "car", "bounding_box": {"top": 1, "left": 1, "height": 4, "width": 4}}
    label = {"annotations": {"objects": [note]}}
    rows = [
        {"data_row": {"external_id": name}, "projects": {"p": {"labels": [label] * count}}}
        for name, count in (("note.jpg", 1), ("b.jpg", 2))
    ]
    write(tmp_path, {"b.jpg": b""})
    kinds = {"annotations": {"objects": [note], "classifications": [{"name": "kind"}]}}
    rows[0]["projects"]["p"]["labels"] = [kinds]  # type: ignore[index]
    listing = listed(tmp_path, ".ndjson", "\n".join(map(json.dumps, rows)))
    assert "1 further note left out" in " ".join(listing.warnings)
    assert noted(listing)["reason"] is None
    (lost,) = (row for row in listing.table.to_pylist() if row["uri"] == "note.ndjson#image=2")
    assert (lost["reason"], "labelled several times" in lost["message"]) == ("broken_row", True)


def test_frames_of_a_video_stay_together(tmp_path: Path) -> None:
    frame = {
        "name": "0001.jpg",
        "videoName": "v1",
        "labels": [{"category": "car", "box2d": {"x1": 1, "y1": 1, "x2": 3, "y2": 3}}],
    }
    write(tmp_path, {"track/v1/0001.jpg": b"", "track/v2/0001.jpg": b""})
    listing = listed(tmp_path, ".json", [frame, {**frame, "videoName": "v2"}])
    rows = {row["uri"]: row["group"] for row in listing.table.to_pylist()}
    assert rows["track/v1/0001.jpg"] == "v1"
    assert rows["track/v2/0001.jpg"] == "v2"


def test_two_files_that_tell_different_of_an_image(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"b.jpg": b"", "a.txt": b"note.jpg\n1\n2 2 4 4 0 0 0 0 0 0\nb.jpg\n1\n1 1 2 2 0 0 0 0 0 0\n"},
    )
    listing = listed(tmp_path, ".txt", "note.jpg\n1\n1 1 4 4 0 0 0 0 0 0\n")
    assert noted(listing, "b.jpg")["reason"] is None
    assert noted(listing)["reason"] == "contradicting_rows"
    assert "their objects or features differ" in noted(listing)["message"]
