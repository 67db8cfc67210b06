"""Objects that were found in image files: boxes in pixels of the files, in all formats."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from shardmill.infra.codecs.geometry import Geometry
from shardmill.training.export.model_input import Seen, View
from shardmill.training.predicting.detected import DETECTED_FILES, PLACES, detected
from shardmill.training.predicting.inputs import Input


def seen(height: int, width: int) -> Seen:
    """A picture that the model sees whole."""
    size = height, width
    whole = 0, 0, height, width
    return Seen(np.zeros((8, 8, 3), np.uint8), View(size, Geometry(whole, size, size, (0, 0)), whole, 8))


INPUTS = [
    Input("wide.jpg", seen(100, 400)),
    Input("broken.jpg", reason="truncated", message="ends early"),
    Input("tall.jpg", seen(600, 200)),
    Input("empty.jpg", seen(50, 50)),
]
NOTHING = [0.0, 0.0, 0.0, 0.0]
OUTPUTS = {
    "boxes": np.array([
        [[0.1, 0.2, 0.5, 0.6], NOTHING],
        [[0.0, 0.0, 1.0, 1.0], [0.25, 0.5, 0.5, 0.75]],
        [NOTHING, NOTHING],
    ], np.float32),
    "scores": np.array([[0.9, 0.0], [0.8, 0.3], [0.0, 0.0]], np.float32),
    "classes": np.array([[1, -1], [0, 1], [-1, -1]], np.int32),
}  # fmt: skip
WANTED = [
    ("wide.jpg", [("caf\\xe9", 10.0, 80.0, 50.0, 240.0)]),
    ("broken.jpg", None),
    ("tall.jpg", [("cat", 0.0, 0.0, 600.0, 200.0), ("caf\\xe9", 150.0, 100.0, 300.0, 150.0)]),
    ("empty.jpg", []),
]


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_edges_are_pixels_of_each_upright_image(kind: str) -> None:
    stream = io.BytesIO()
    output = DETECTED_FILES[kind](stream, PLACES["objects"])
    output.add(list(detected(INPUTS, OUTPUTS, ["cat", "caf\udce9"], PLACES["objects"])))
    output.close()
    if kind == "csv":
        lines = list(csv.DictReader(io.StringIO(stream.getvalue().decode())))
        found = [
            (row["path"], row["label"], *(float(row[side]) for side in ("top", "left", "bottom", "right")))
            for row in lines
            if row["label"]
        ]
        assert found == [(path, *one) for path, objects in WANTED for one in objects or []]
        assert [row["path"] for row in lines if not row["label"]] == ["broken.jpg", "empty.jpg"]
        return
    rows = (
        [json.loads(line) for line in stream.getvalue().splitlines()]
        if kind == "json"
        else pq.read_table(io.BytesIO(stream.getvalue())).to_pylist()
    )
    objects = [
        None
        if row["objects"] is None
        else [
            (one["label"], *(one[side] for side in ("top", "left", "bottom", "right")))
            for one in row["objects"]
        ]
        for row in rows
    ]
    assert list(zip([row["path"] for row in rows], objects, strict=True)) == WANTED
    assert rows[1]["reason"] == "truncated"


def test_corners_are_pixels_and_may_lie_outside_of_the_picture() -> None:
    """Of 100 by 400 pixels; the second box is around nothing of it."""
    corners = [[0.1, 0.1, 0.5, 0.1, 0.5, 0.2, 0.1, 0.2], [1.1, 0.1, 1.5, 0.1, 1.5, 0.2, 1.1, 0.2]]
    turned = [[-0.1, 0.5, 0.5, 0.35, 1.1, 0.5, 0.5, 0.65], [0.0] * 8]
    outputs = {**OUTPUTS, "boxes": np.array([corners, turned, [[0.0] * 8] * 2], np.float32)}
    outputs["classes"] = np.array([[1, 0], [0, -1], [-1, -1]], np.int32)
    inputs = [INPUTS[0], INPUTS[1], Input("wide2.jpg", seen(100, 400)), INPUTS[3]]
    first, refused, second, none = detected(inputs, outputs, ["cat", "dog"], PLACES["oriented"])
    assert refused.objects is None
    assert none.objects == []
    assert first.objects is not None
    assert second.objects is not None
    wanted = dict(zip(PLACES["oriented"], [10, 40, 50, 40, 50, 80, 10, 80], strict=True))
    assert first.objects == [{"label": "dog", "score": 0.9, **wanted}]
    found = [second.objects[0][name] for name in PLACES["oriented"]]
    np.testing.assert_allclose(found, [-10, 200, 50, 140, 110, 200, 50, 260], atol=0.01)
    stream = io.BytesIO()
    output = DETECTED_FILES["csv"](stream, PLACES["oriented"])
    output.add([first])
    assert stream.getvalue().splitlines() == [
        b"path,height,width,label,score,y1,x1,y2,x2,y3,x3,y4,x4,reason,message",
        b"wide.jpg,100,400,dog,0.9,10.0,40.0,50.0,40.0,50.0,80.0,10.0,80.0,,",
    ]
