"""Exports of FiftyOne: objects, key points and classes of samples.json and labels.json."""

from __future__ import annotations

import base64
import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.beam_jobs.sources import list_inputs, open_source
from shardmill.beam_jobs.sources.annotations.shapes import BAD_POINTS
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.recognising import settled
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.format.features import features_in
from tests.samples.sources.requests import asked
from tests.unit.beam_jobs.sources.kinds.test_coco_shapes import objects_of
from tests.unit.beam_jobs.sources.kinds.test_objects import LOST, outcomes, with_images


def packed(array: np.ndarray) -> dict[str, Any]:
    """An array as FiftyOne writes it."""
    sink = io.BytesIO()
    np.save(sink, array)
    return {"$binary": {"base64": base64.b64encode(zlib.compress(sink.getvalue())).decode(), "subType": "00"}}


def sample(number: int, label: Any = None, **more: Any) -> dict[str, Any]:
    metadata = {"_cls": "ImageMetadata", "width": 64, "height": 48}
    path, key = f"data/{number}.jpg", {"$oid": f"{number:024}"}
    own = {"_id": key, "filepath": path, "tags": [], "metadata": metadata, "ground_truth": label}
    return own | more


def write(folder: Path, document: dict[str, Any], name: str = "samples.json", count: int = 9) -> Path:
    with_images(folder, *(f"data/{number}.jpg" for number in range(count)))
    (folder / name).write_text(json.dumps(document))
    return folder


def taken(folder: Path, **settings: Any) -> Listing:
    """The listing of a source whose kind is recognised."""
    request = settled(asked(folder, **settings))
    assert request.config.source.kind == "fiftyone"
    return list_inputs(open_source(request), request.config)


def detections(*objects: Any) -> dict[str, Any]:
    return {"_cls": "Detections", "detections": list(objects)}


CAT = {"_cls": "Detection", "label": "cat", "bounding_box": [0.25, 0.5, 0.5, 0.25], "attributes": {}}


def test_detections_polygons_and_masks_are_objects(tmp_path: Path) -> None:
    mask = np.zeros((6, 8), bool)
    mask[1:4, 2:8] = True
    texts = packed(np.array([["a"]]))
    masked = [{**CAT, "mask": packed(mask)}, {**CAT, "mask": {"$binary": "x"}}, {**CAT, "mask": texts}]
    archive = base64.b64encode(zlib.compress(b"PK\x03\x04" + bytes(40))).decode()
    broken = [{**CAT, "bounding_box": box} for box in ([0.1, 0.1, 0.2], [0.1, 0.1, 0, 0.2], None)]
    samples = [
        sample(
            0, detections(CAT, {**CAT, "label": "dog", "iscrowd": 1}), tags=["blurred", "Train"], light=0.5
        ),
        sample(1, None, light=1),
        sample(2, detections(masked[0]), tags=["validation"]),
        sample(3, detections(*masked[1:], {**CAT, "mask_path": "fields/1.png"}, {**CAT, "mask": archive})),
        sample(4, detections(*broken, {**CAT, "label": None}, "none")),
        sample(5, detections(), tags=["test", "val"]),
        {"filepath": 7},
        "no sample",
        sample(8, {"_cls": "Detections", "detections": None}),
    ]
    listing = taken(write(tmp_path, {"samples": samples}), columns={"features": ["light"]})
    assert {uri: reason for uri, (status, reason) in outcomes(listing).items() if status == LOST} == {
        "samples.json#image=6": "broken_row",
        "samples.json#image=7": "bad_path",
        "samples.json#image=8": "broken_row",
    }
    rows = {row["uri"]: row for row in listing.table.to_pylist()}
    assert [rows[f"data/{at}.jpg"]["split"] for at in range(3)] == ["train", None, "validation"]
    assert [rows[f"data/{at}.jpg"]["feature:light"] for at in range(3)] == [0.5, 1, None]
    box = [0.5, 0.25, 0.75, 0.75]
    found = objects_of(listing, "data/0.jpg")
    assert [(one["name"], one["box"]) for one in found] == [("cat", box), ("dog", box)]
    assert rows["data/0.jpg"]["feature:objects/is_crowd"] == [0, 1]
    assert rows["data/0.jpg"]["feature:objects/annotated_size"] == [48, 64]
    (ring,) = objects_of(listing, "data/2.jpg")[0]["rings"]
    edges = [*ring.min(0), *ring.max(0)]
    np.testing.assert_allclose(edges, [0.5 + 0.25 / 6, 0.25 + 0.5 * 2 / 8, 0.5 + 0.25 * 4 / 6, 0.75])
    assert [len(one["rings"]) for one in objects_of(listing, "data/3.jpg")] == [0, 0, 0, 0]
    assert rows["data/4.jpg"]["feature:objects/num_left_out"] == 5
    words = " ".join(listing.warnings)
    assert "5 of 12 objects are left out" in words
    assert "2 without a box of four numbers (first object 1 of sample 5 of samples.json)" in words
    assert "4 masks left out: 1 in a file of their own (first object 3 of sample 4" in words


def test_polylines_and_key_points(tmp_path: Path) -> None:
    ring = [[0.1, 0.2], [0.5, 0.2], [0.5, 0.6]]
    lines = [
        {"label": "cat", "points": [ring], "closed": True, "filled": True},
        {"label": "cat", "points": [ring], "closed": False, "filled": False},
        {"label": "cat", "points": [[[0.1, "x"]]], "closed": True},
        {"label": "cat", "points": 5, "filled": True},
    ]
    lines = [{**line, "_cls": "Polyline"} for line in lines]
    folder = write(tmp_path / "lines", {"samples": [sample(0, {"_cls": "Polylines", "polylines": lines})]})
    listing = taken(folder)
    (found,) = objects_of(listing, "data/0.jpg")
    np.testing.assert_allclose(sorted(map(tuple, found["rings"][0])), [(0.2, 0.1), (0.2, 0.5), (0.6, 0.5)])
    np.testing.assert_allclose(found["box"], [0.2, 0.1, 0.6, 0.5])
    assert "1 that are open lines (first object 2 of sample 1 of samples.json)" in " ".join(listing.warnings)
    points = [
        {"label": "cat", "points": [[0.1, 0.2], [float("nan"), float("nan")], [0.5, 0.75]]},
        {"label": "cat", "points": [[0.1, 0.2], [0.3, 0.3]]},
        {"label": "cat", "points": [[0.1, 0.2], [{"$numberDouble": "NaN"}, 1], [0.5, None]]},
    ]
    points = [{**one, "_cls": "Keypoint"} for one in points]
    folder = write(tmp_path / "points", {"samples": [sample(0, {"_cls": "Keypoints", "keypoints": points})]})
    skeleton = {"labels": ["left ear", "right ear", "nose"], "edges": [[0, 2, 1]]}
    (folder / "metadata.json").write_text(json.dumps({"skeletons": {"ground_truth": skeleton}}))
    listing = taken(folder)
    (found,) = objects_of(listing, "data/0.jpg")
    np.testing.assert_allclose(found["points"], [[0.2, 0.1, 2], [0, 0, 0], [0.75, 0.5, 2]])
    (named,) = (one.points for one in features_in(listing.table.schema) if one.points is not None)
    assert (named.names, named.skeleton) == (("left ear", "right ear", "nose"), ((0, 2), (2, 1)))
    assert named.partners == (1, 0, 2)


@pytest.mark.parametrize(
    ("kind", "first", "second", "found"),
    [
        ("Classification", {"label": "cat"}, {"label": None}, ["cat", None]),
        (
            "Classifications",
            {"classifications": [{"label": "cat"}, {"label": "a"}, "x"]},
            {"classifications": []},
            [["a", "cat"], []],
        ),
    ],
)
def test_classes_of_images(tmp_path: Path, kind: str, first: Any, second: Any, found: list[Any]) -> None:
    samples = [sample(0, {"_cls": kind, **first}, light=1), sample(1, {"_cls": kind, **second}), sample(2)]
    listing = taken(write(tmp_path, {"samples": samples}), columns={"features": ["light"]})
    rows = {row["uri"]: row for row in listing.table.to_pylist()}
    column = "label" if kind == "Classification" else "feature:labels"
    assert [rows[f"data/{at}.jpg"][column] for at in range(2)] == found
    assert rows["data/0.jpg"]["feature:light"] == 1
    assert rows["data/5.jpg"]["reason"] == "not_in_table"
    if kind == "Classification":
        assert [rows[f"data/{at}.jpg"]["reason"] for at in (1, 2)] == ["no_label"] * 2


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ({"0": [{"label": 1, "bounding_box": CAT["bounding_box"]}], "1": None, "2": []}, [["dog"], [], []]),
        ({"0": 1, "1": "cat", "2": {"label": 0, "confidence": 1}}, ["dog", "cat", "cat"]),
        ({"0": [1, 0], "1": ["cat"], "2": None}, [["cat", "dog"], ["cat"], []]),
    ],
)
def test_labels_of_image_datasets(tmp_path: Path, labels: dict[str, Any], names: list[Any]) -> None:
    listing = taken(write(tmp_path, {"classes": ["cat", "dog"], "labels": labels}, "labels.json"))
    rows = {row["uri"]: row for row in listing.table.to_pylist()}
    own = "feature:labels" if isinstance(names[0], list) else "label"
    assert [rows[f"data/{at}.jpg"][own] for at in range(3)] == names


def test_several_fields_of_labels_are_asked_about(tmp_path: Path) -> None:
    samples = [
        {**sample(0), "truth": detections(CAT), "model": detections(), "sky": {"_cls": "Classification"}}
    ]
    write(tmp_path, {"samples": samples})
    with pytest.raises(UsageError, match="whose fields truth, model, sky hold labels") as caught:
        settled(asked(tmp_path))
    assert "source.columns.label=model" in str(caught.value.remedy)
    assert objects_of(taken(tmp_path, columns={"label": "truth"}), "data/0.jpg")[0]["name"] == "cat"
    request = settled(asked(tmp_path, columns={"label": "truth"}))
    source = request.config.source
    for changed, words in (
        ({"labels": "class"}, "the samples have objects"),
        ({"columns": source.columns.model_copy(update={"label": "nothing"})}, "no field 'nothing'"),
        ({"columns": source.columns.model_copy(update={"label": None})}, "several fields of labels"),
    ):
        config = request.config.model_copy(update={"source": source.model_copy(update=changed)})
        with pytest.raises(ConfigError, match=words):
            list_inputs(open_source(request), config)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"samples": 1}', '{"labels": []}', '{"samples": []}'])
def test_what_is_no_export_is_refused_by_name(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"samples": [sample(0, detections(CAT))]})
    request = settled(asked(tmp_path))
    (tmp_path / "samples.json").write_text(text)
    with pytest.raises(ConfigError, match=r"samples\.json"):
        list_inputs(open_source(request), request.config)


def test_other_files_of_this_name_are_no_exports(tmp_path: Path) -> None:
    for name in ("cat/1.jpg", "dog/1.jpg"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"an image")
    (tmp_path / "labels.json").write_text(json.dumps({"labels": {"0": "cat", "1": "dog"}}))
    assert settled(asked(tmp_path)).config.source.kind == "image_folder"


def test_key_points_without_a_skeleton_have_numbers(tmp_path: Path) -> None:
    pair = [[0.1, 0.2], [0.5, 0.6]]
    points = [{"_cls": "Keypoint", "label": "cat", "points": each} for each in (pair[:1], pair, pair)]
    listing = taken(write(tmp_path, {"samples": [sample(0, {"_cls": "Keypoints", "keypoints": points})]}))
    (named,) = (one.points for one in features_in(listing.table.schema) if one.points is not None)
    assert (named.names, named.skeleton, named.partners) == (("1", "2"), (), None)
    assert len(objects_of(listing, "data/0.jpg")) == 2
    assert any(BAD_POINTS in text for text in listing.warnings)
