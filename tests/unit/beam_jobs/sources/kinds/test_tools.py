"""The files of labelling tools, after examples of their documentation: objects, images, and what is wrong."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kind_modules import kind_module
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.recognising import settled
from shardmill.beam_jobs.tables.features import features_of
from shardmill.infra.codecs.polygons import rings_of_mask
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.format.known_features import key_points
from tests.samples.images.photos import write
from tests.samples.sources.requests import asked

Files = Mapping[str, bytes | str | dict[str, Any] | list[Any]]


def written(folder: Path, files: Files) -> Path:
    def content(value: Any) -> bytes:
        text = value if isinstance(value, str | bytes) else json.dumps(value)
        return text.encode() if isinstance(text, str) else text

    return write(folder, {name: content(value) for name, value in files.items()})


def listed(folder: Path, kind: str, files: Files, annotations: str, **source: Any) -> Listing:
    written(folder, files)
    settings = {"kind": kind, "objects": {"annotations": annotations}, **source}
    config = PrepareConfig.model_validate({"source": settings})
    listing: Listing = kind_module(config).list_inputs(SourceFolder(str(folder)), config)
    return listing


def of(listing: Listing, uri: str) -> dict[str, Any]:
    """The features of the objects of an image."""
    (row,) = (row for row in listing.table.to_pylist() if row["uri"] == uri)
    assert row["reason"] is None
    return {
        name.removeprefix("feature:objects/"): value for name, value in row.items() if ":objects/" in name
    }


def reasons(listing: Listing) -> dict[str, str | None]:
    return {row["uri"]: row["reason"] for row in listing.table.to_pylist()}


def rings(found: dict[str, Any]) -> list[np.ndarray]:
    points = np.reshape(found["polygons"], (-1, 2))
    return np.split(points, np.cumsum(found["ring_points"])[:-1])


def is_ellipse(ring: np.ndarray, x: float, y: float, radius_x: float, radius_y: float, turn: float) -> bool:
    """Whether all points of a ring (y, x) solve the equation of an ellipse that is turned clockwise."""
    across, down = ring[:, 1] - x, ring[:, 0] - y
    along = across * math.cos(turn) + down * math.sin(turn)
    beside = down * math.cos(turn) - across * math.sin(turn)
    return bool(np.allclose((along / radius_x) ** 2 + (beside / radius_y) ** 2, 1, rtol=0, atol=1e-4))


def mask_png(bitmap: np.ndarray) -> str:
    return base64.b64encode(cv2.imencode(".png", bitmap)[1].tobytes()).decode()


def labelme(*shapes: Any, path: str = "a.jpg", **more: Any) -> dict[str, Any]:
    size = {"imageHeight": 40, "imageWidth": 80}
    return (
        {"version": "5.2.1", "flags": {}, "shapes": [*shapes], "imagePath": path, "imageData": None}
        | size
        | more
    )


def shape(kind: str | None, label: Any, points: Any, **more: Any) -> dict[str, Any]:
    return {"label": label, "points": points, "group_id": None, "shape_type": kind, "flags": {}} | more


LABELME = labelme(
    shape("rectangle", "cat", [[30, 5], [10, 25]]),
    shape("rectangle", "cat", [[1, 2], [5, 2], [5, 8], [1, 8]]),
    shape("polygon", "dog", [[0, 0], [20, 0], [0, 10]]),
    shape("circle", "ball", [[40, 20], [43, 24]]),
    shape("oriented_rectangle", "ship", [[20, 10], [30, 20], [25, 25], [15, 15]]),
    shape("mask", "dog", [[10, 10], [12, 11]], mask=mask_png(np.array([[9, 0, 9], [9, 9, 9]], np.uint8))),
    shape("rectangle", "person", [[50, 10], [60, 30]], group_id=7),
    shape("point", "left eye", [[52, 12]], group_id=7),
    shape("point", "right eye", [[57, 12]], group_id=7),
    shape("point", "left eye", [[3, 3]]),
    shape("linestrip", "road", [[0, 0], [5, 5]], group_id=8), shape("point", "end", [[5, 5]], group_id=8),
    shape("polygon", "dog", [[0, 0], [20, 0]]),
    shape("polygon", "dog", [[0, 0], [20, float("nan")], [1, 1]]),
    shape("mask", "dog", [[10, 10], [12, 11]], mask="!"),
    shape("star", "dog", [[0, 0]]),
    shape("polygon", None, [[0, 0], [20, 0], [0, 10]]),
    "no shape",
    flags={"blurred": True, "dark": False, "odd": 1},
)  # fmt: skip


def test_labelme(tmp_path: Path) -> None:
    listing = listed(tmp_path, "labelme", {"a.json": LABELME, "a.jpg": b""}, "*.json")
    found = of(listing, "a.jpg")
    assert found["label"] == ["cat", "cat", "dog", "ball", "ship", "dog", "person"]
    np.testing.assert_allclose(
        np.reshape(found["bbox"], (-1, 4)),
        [[5, 10, 25, 30], [2, 1, 8, 5], [0, 0, 10, 20], [15, 35, 25, 45], [10, 15, 25, 30], [10, 10, 12, 13],
         [10, 50, 30, 60]],
        rtol=0, atol=1e-5,
    )  # fmt: skip
    assert (found["annotated_size"], found["num_left_out"]) == ([40, 80], 6)
    assert found["rings"] == [0, 0, 1, 1, 0, 1, 0]
    polygon, circle, mask = rings(found)
    np.testing.assert_array_equal(sorted(polygon.tolist()), [[0, 0], [0, 20], [10, 0]])
    assert is_ellipse(circle, 40, 20, 5, 5, 0)
    drawn = np.zeros((40, 80), np.uint8)
    cv2.fillPoly(drawn, [np.rint(mask[:, ::-1] * 2 - 1).astype(np.int32)], 1, shift=1)
    assert len(mask) == 8
    corners = np.reshape(found["corners"], (-1, 4, 2))
    np.testing.assert_array_equal(corners[4][:, ::-1], [[20, 10], [30, 20], [25, 25], [15, 15]])
    points = key_points(features_of(listing.table))
    assert points is not None
    assert (points.names, points.partners) == (("left eye", "right eye"), (1, 0))
    assert found["keypoints"][-4:] == [12, 52, 12, 57]
    assert found["visibility"] == [0, 0] * 6 + [2, 2]
    words = " ".join(listing.warnings)
    assert "1 without a class" in words
    assert "3 whose points are not those of their shape" in words
    assert "2 of a shape that is not read" in words
    assert "point" in words
    assert "linestrip" in words
    (row,) = (row for row in listing.table.to_pylist() if row["uri"] == "a.jpg")
    assert row["feature:flags"] == ["blurred"]


def test_outlines_of_a_group_are_parts_of_one_object(tmp_path: Path) -> None:
    """As in labelme2coco, the example of LabelMe: an instance is a label and a group."""
    first, second = [[0, 0], [20, 0], [0, 10]], [[40, 0], [60, 0], [40, 10]]
    drawn = [
        ("dog", first, 1),
        ("dog", second, 1),
        ("cat", first, 1),
        ("dog", first, None),
        ("dog", second, None),
    ]
    shapes = [shape("polygon", name, points, group_id=group) for name, points, group in drawn]
    files: Files = {"a.json": labelme(*shapes), "a.jpg": b""}
    found = of(listed(tmp_path, "labelme", files, "*.json"), "a.jpg")
    assert (found["label"], found["rings"]) == (["dog", "cat", "dog", "dog"], [2, 1, 1, 1])
    assert found["bbox"][:4] == [0, 0, 10, 60]


def test_files_of_labelme_find_their_images(tmp_path: Path) -> None:
    files: Files = {
        "marks/1.json": labelme(shape("rectangle", "a", [[1, 1], [9, 9]]), path="..\\photos\\1.jpg"),
        "marks/2.json": labelme(path="C:\\Users\\me\\2.jpg"), "marks/3.json": labelme(path="nothing.jpg"),
        "marks/7.json": labelme(path="twice.jpg"), "1/twice.jpg": b"4", "2/twice.jpg": b"5",
        "marks/8.json": labelme(path="within.jpg", imageData="/9j/"),
        "marks/4.json": b"{", "marks/5.json": b"[]", "marks/6.json": {"shapes": {}},
        "photos/1.jpg": b"1", "photos/2.jpg": b"2", "photos/other.jpg": b"3",
    }  # fmt: skip
    listing = listed(tmp_path, "labelme", files, "marks/*.json")
    assert reasons(listing) == {
        **{f"marks/{number}.json": "table" for number in range(1, 9)},
        "1/twice.jpg": "not_in_table", "2/twice.jpg": "not_in_table",
        "marks/7.json#image=1": "several_files", "marks/8.json#image=1": "missing_file",
        "photos/1.jpg": None, "photos/2.jpg": None, "photos/other.jpg": "not_in_table",
        "marks/3.json#image=1": "missing_file",
        **{f"marks/{number}.json#image=1": "broken_row" for number in (4, 5, 6)},
    }  # fmt: skip
    messages = listing.table["message"].to_pylist()
    assert "within.jpg; its picture is within marks/8.json (imageData)" in " ".join(filter(None, messages))


def test_masks_of_labelme_that_other_programs_write(tmp_path: Path) -> None:
    with_palette = Image.new("P", (3, 2))
    with_palette.putdata([0, 2, 2, 0, 2, 2])
    with_palette.putpalette([0, 0, 0, 9, 9, 9, 99, 0, 0])
    sink = io.BytesIO()
    with_palette.save(sink, "PNG")
    good = sink.getvalue()
    header = b"IHDR" + (1 << 16).to_bytes(4, "big") * 2 + good[24:29]
    huge = good[:12] + header + zlib.crc32(header).to_bytes(4, "big") + good[33:]
    corners = [[10, 10], [12, 11]]
    masks = [base64.b64encode(data).decode() for data in (good, huge)]
    document = labelme(*(shape("mask", "dog", corners, mask=mask) for mask in masks))
    found = of(listed(tmp_path, "labelme", {"a.jpg": b"", "a.json": document}, "*.json"), "a.jpg")
    assert (found["bbox"], found["num_left_out"]) == ([10, 11, 12, 13], 1)


CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations><version>1.1</version><meta><task><name>t</name></task></meta>
<image id="0" name="deep/a.jpg" subset="Validation" width="80" height="40">
 <box label="car" source="manual" occluded="0" xtl="10.5" ytl="5" xbr="30" ybr="25.25" z_order="0">
  <attribute name="colour">red</attribute></box>
 <box label="ship" xtl="20" ytl="10" xbr="40" ybr="20" rotation="30.00"></box>
 <polygon label="car" points="0,0;20.5,0;0,10"></polygon>
 <ellipse label="ball" cx="40" cy="20" rx="8" ry="4" rotation="30"></ellipse>
 <mask label="car" rle="1, 3, 2" left="10" top="8" width="3" height="2"></mask>
 <skeleton label="person"><points label="nose" outside="0" occluded="1" points="50,10"></points>
  <points label="foot" outside="1" occluded="0" points="1,1"></points>
  <points label="hand" outside="0" occluded="0" points="60,30"></points></skeleton>
 <points label="wheels" points="10,30;20,35"></points>
 <points label="wheels" points="1,2;3,4;5,6"></points>
 <points label="wheels" points="30,30;40,35"></points>
 <polyline label="lane" points="0,0;5,5"></polyline><tag label="night"></tag>
 <box label="car" xtl="1" ytl="1" xbr="nan" ybr="5"></box><box label="car" xtl="1"></box>
 <polygon label="car" points="0,0;a,1"></polygon><polygon points="0,0;20,0;0,10"></polygon>
 <mask label="car" rle="1, 2" left="0" top="0" width="3" height="2"></mask>
 <hologram label="car"></hologram>
</image>
<image id="1" name="none.jpg" width="80" height="40"></image><image id="2" width="80" height="40"/>
</annotations>"""


def test_cvat(tmp_path: Path) -> None:
    image, other = "images/Validation/deep/a.jpg", "images/Train/deep/a.jpg"
    files: Files = {"annotations.xml": CVAT, image: b"", other: b"1"}
    listing = listed(tmp_path, "cvat", files, "annotations.xml")
    found = of(listing, image)
    assert found["label"] == ["car", "ship", "car", "ball", "car", "person", "wheels", "wheels"]
    assert (found["annotated_size"], found["num_left_out"]) == ([40, 80], 6)
    boxes = np.reshape(found["bbox"], (-1, 4))
    np.testing.assert_allclose(
        boxes[[0, 2, 4, 5]], [[5, 10.5, 25.25, 30], [0, 0, 10, 20.5], [8, 10, 10, 13], [10, 50, 30, 60]]
    )
    turn = math.radians(30)
    corner = [15 - 10 * math.sin(turn) - 5 * math.cos(turn), 30 - 10 * math.cos(turn) + 5 * math.sin(turn)]
    corners = np.reshape(found["corners"], (-1, 4, 2))[1]
    np.testing.assert_allclose(corners[0], corner, rtol=1e-6)
    np.testing.assert_allclose(corners.mean(0), [15, 30], rtol=1e-6)
    outlines = rings(found)
    assert found["rings"] == [0, 0, 1, 1, 2, 0, 0, 0]  # .XX / X.. and the pixel that it touches at a corner
    assert is_ellipse(outlines[1], 40, 20, 8, 4, turn)
    points = key_points(features_of(listing.table))
    assert points is not None
    assert points.names == ("nose", "foot", "hand", "0", "1")
    assert found["visibility"][25:30] == [1, 0, 2, 0, 0]
    assert found["keypoints"][50:56] == [10, 50, 0, 0, 30, 60]
    assert found["visibility"][-5:] == [0, 0, 0, 2, 2]
    rows = {row["uri"]: (row["split"], row["reason"]) for row in listing.table.to_pylist()}
    assert (rows[image], rows[other]) == (("validation", None), (None, "not_in_table"))
    assert rows["annotations.xml#image=2"][1] == "missing_file"
    assert rows["annotations.xml#image=3"][1] == "bad_path"
    words = " ".join(listing.warnings)
    for part in ("1 of another number of points than others", "4 without the numbers of their shape",
                 "polyline", "hologram"):  # fmt: skip
        assert part in words
    assert listing.table["feature:tags"].to_pylist().count(["night"]) == 1


VIDEO_OF_CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations><version>1.1</version><meta><task><size>9</size>
<original_size><width>80</width><height>60</height></original_size></task></meta>
<track id="0" label="car" source="manual">
<box frame="0" keyframe="1" outside="0" occluded="0" xtl="10.5" ytl="5" xbr="30" ybr="35" z_order="0"></box>
<box frame="1" keyframe="0" outside="0" occluded="0" xtl="11.5" ytl="5" xbr="31" ybr="35" z_order="0"></box>
<box frame="2" keyframe="1" outside="1" occluded="0" xtl="11.5" ytl="5" xbr="31" ybr="35" z_order="0"></box>
</track>
<track id="1" label="bus" source="manual">
<polygon frame="1" keyframe="1" outside="0" occluded="0" points="1,1;9,1;9,9" z_order="0"></polygon>
<box frame="x" outside="0"></box></track>
</annotations>"""


def test_tracks_of_a_video_in_cvat(tmp_path: Path) -> None:
    frames = {f"images/frame_00000{number}.PNG": b"" for number in range(4)}
    written(tmp_path, frames | {"annotations.xml": VIDEO_OF_CVAT})
    request = settled(asked(tmp_path))
    listing = kind_module(request.config).list_inputs(SourceFolder(str(tmp_path)), request.config)
    assert of(listing, "images/frame_000000.PNG")["bbox"] == [5, 10.5, 35, 30]
    second = of(listing, "images/frame_000001.PNG")
    assert second["label"] == ["car", "bus"]
    assert second["bbox"] == [5, 11.5, 35, 31, 1, 1, 9, 9]
    assert second["annotated_size"] == [60, 80]
    assert of(listing, "images/frame_000002.PNG")["label"] == [], "the car has left"
    rows = {row["uri"]: row for row in listing.table.to_pylist()}
    assert rows["images/frame_000003.PNG"]["reason"] is not None
    assert {rows[f"images/frame_00000{number}.PNG"]["group"] for number in range(3)} == {"annotations.xml"}


@pytest.mark.parametrize(
    "text",
    ["", "<annotations>", "<annotations></annotations>", "<annotations><track/></annotations>", "<a/>"],
)
def test_what_is_no_file_of_cvat_is_refused_by_name(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a\.xml"):
        listed(tmp_path, "cvat", {"a.xml": text}, "a.xml")


def result(kind: str, value: dict[str, Any], **more: Any) -> dict[str, Any]:
    sizes = {"original_width": 80, "original_height": 40, "image_rotation": 0}
    return {"id": "r", "type": kind, "value": value, "to_name": "image", "from_name": "label", **sizes} | more


def rect(x: Any, y: Any, width: Any, height: Any, *labels: str, **more: Any) -> dict[str, Any]:
    value = {"x": x, "y": y, "width": width, "height": height, "rotation": 0, "rectanglelabels": [*labels]}
    return result("rectanglelabels", value, **more)


ELLIPSE = {"x": 50, "y": 50, "radiusX": 10, "radiusY": 10, "rotation": 30}
TURNED = {"x": 50.0, "y": 25.0, "width": 25.0, "height": 20.0, "rotation": 30}
TASKS: list[Any] = [
    {
        "id": 1,
        "data": {"image": "/data/upload/2/1a2b3c4d-a.jpg"},
        "predictions": [{"result": [result("rectanglelabels", TURNED | {"rectanglelabels": ["no"]})]}],
        "annotations": [
            {"was_cancelled": True, "result": []},
            {
                "was_cancelled": False,
                "result": [
                    rect(12.5, 25, 25, 50, "car"),
                    result("rectanglelabels", TURNED | {"rectanglelabels": ["ship"]}),
                    result("polygonlabels", {"points": [[0, 0], [25, 0], [0, 50]], "polygonlabels": ["car"]}),
                    result("ellipselabels", ELLIPSE | {"ellipselabels": ["ball"]}),
                    rect(60, 20, 10, 40, "person", id="p"),
                    result("keypointlabels", {"x": 65, "y": 30, "keypointlabels": ["nose"]}, parentID="p"),
                    result("keypointlabels", {"x": 1, "y": 1, "keypointlabels": ["nose"]}, id="l"),
                    result("labels", {"x": 0, "y": 0, "width": 10, "height": 10, "labels": ["car"]}),
                    result("choices", {"choices": ["night"]}),
                    result("choices", {"x": 1, "y": 1, "width": 5, "height": 5, "choices": ["torn"]}),
                    rect("1%", 1, 5, 5, "a", id="lost"),
                    result("keypointlabels", {"x": 1, "y": 1, "keypointlabels": ["nose"]}, parentID="lost"),
                    result("brushlabels", {"format": "rle", "rle": [1], "brushlabels": ["car"]}),
                    rect(1, 1, 5, 5, "a", "b"),
                    rect("1%", 1, 5, 5, "a"),
                    result("rectanglelabels", TURNED | {"rectanglelabels": ["a"]}, image_rotation=90),
                    rect(1, 1, 5, 5),
                    "nothing",
                ],
            },
        ],
    },
    {"data": {"image": "/data/local-files/?d=sets%2Fone%2Fb.jpg"}, "annotations": []},
    {"data": {"image": "s3://bucket/one/twice.jpg"}, "annotations": [{"result": []}, {"result": []}]},
    {
        "data": {"image": "http://host/c.jpg?x=1"},
        "annotations": [{"result": []}, {"result": [], "ground_truth": True}],
    },
    {"data": {"text": "no image"}, "annotations": []},
    "no task",
]  # fmt: skip


# encode_rle of the package label-studio-converter made these of the pixels below.
BRUSH = [0, 0, 0, 80, 57, 27, 252, 96, 19, 255, 219, 0, 143, 254, 112, 8, 255, 239, 128, 79, 255, 124, 0]
PAINTED = np.array([[0, 1, 1, 0, 0], [0, 1, 0, 0, 1], [0, 0, 0, 0, 1], [1, 0, 0, 0, 0]])


def test_brushes_of_label_studio(tmp_path: Path) -> None:
    sizes = {"original_width": 5, "original_height": 4}
    runs = [BRUSH, BRUSH[:-4], [*BRUSH[:3], 84, *BRUSH[4:]], [*BRUSH[:9], 256], "text", []]
    results = [
        result("brushlabels", {"format": "rle", "rle": rle, "brushlabels": ["car"]}, **sizes) for rle in runs
    ]
    forged = {"original_width": -5, "original_height": -4}
    results.append(result("brushlabels", {"format": "rle", "rle": BRUSH, "brushlabels": ["car"]}, **forged))
    task = {"data": {"image": "a.jpg"}, "annotations": [{"result": results}]}
    found = of(listed(tmp_path, "label_studio", {"a.jpg": b"", "t.json": [task]}, "t.json"), "a.jpg")
    assert (found["label"], found["num_left_out"]) == (["car"], 6)
    expected = rings_of_mask(PAINTED)
    assert found["ring_points"] == [len(ring) for ring in expected]
    assert np.array_equal(np.concatenate(rings(found)), np.concatenate(expected))


def test_label_studio(tmp_path: Path) -> None:
    images = {f"images/{name}.jpg": name.encode() for name in ("a", "one/b", "one/twice", "two/b", "c")}
    listing = listed(tmp_path, "label_studio", {**images, "export.json": TASKS}, "export.json")
    found = of(listing, "images/a.jpg")
    assert found["label"] == ["car", "ship", "car", "ball", "person", "car"]
    assert (found["annotated_size"], found["num_left_out"]) == ([40, 80], 6)
    boxes = np.reshape(found["bbox"], (-1, 4))
    np.testing.assert_allclose(
        boxes[[0, 2, 4, 5]], [[10, 10, 30, 30], [0, 0, 20, 20], [8, 48, 24, 56], [0, 0, 4, 8]]
    )
    # The SDK of Label Studio: a corner (x, y), width along (cos, sin), height along (-sin, cos), in pixels.
    cos, sin, (x, y, width, height) = math.cos(math.pi / 6), math.sin(math.pi / 6), (40, 10, 20, 8)
    right, down = np.array([width * cos, width * sin]), np.array([-height * sin, height * cos])
    expected = np.array([[0, 0], right, right + down, down]) + np.array([x, y])
    np.testing.assert_allclose(np.reshape(found["corners"], (-1, 4, 2))[1][:, ::-1], expected, rtol=1e-6)
    assert is_ellipse(rings(found)[1], 40, 20, 8, 4, math.pi / 6)
    assert found["keypoints"][8:10] == [12, 52]
    assert reasons(listing) == {
        "images/a.jpg": None, "images/one/b.jpg": None, "images/c.jpg": None,
        "images/two/b.jpg": "not_in_table", "images/one/twice.jpg": "contradicting_rows",
        "export.json": "table", "export.json#image=5": "bad_path", "export.json#image=6": "broken_row",
    }  # fmt: skip
    words = " ".join(listing.warnings)
    assert listing.table["feature:choices"].to_pylist().count(["night"]) == 1
    for part in ("keypointlabels", "1 with several labels", "1 without a class"):
        assert part in words


def test_the_short_form_of_label_studio(tmp_path: Path) -> None:
    one = {"x": 12.5, "y": 25, "width": 25, "height": 50, "rotation": 0, "rectanglelabels": ["car"]}
    task = {"id": 1, "image": "/data/upload/1/1a2b3c4d-a.jpg", "annotator": 1, "annotation_id": 1}
    files: Files = {
        "a.jpg": b"",
        "m.json": [
            task
            | {"label": [one | {"original_width": 80, "original_height": 40}]}
            | {"scene": {"choices": ["night", "rain"]}}
        ],
    }
    listing = listed(tmp_path, "label_studio", files, "m.json")
    assert ["night", "rain"] in listing.table["feature:choices"].to_pylist()
    found = of(listing, "a.jpg")
    assert (found["bbox"], found["label"]) == ([10, 10, 30, 30], ["car"])


@pytest.mark.parametrize("annotations", [7, {"result": []}, ["none"], [{"result": "none"}], [{}]])
def test_tasks_of_label_studio_without_lists_are_no_images_without_objects(
    annotations: Any, tmp_path: Path
) -> None:
    tasks = [
        {"data": {"image": "a.jpg"}, "annotations": annotations},
        {"data": {"image": "b.jpg"}, "annotations": []},
    ]
    files: Files = {"a.jpg": b"", "b.jpg": b"b", "e.json": tasks}
    found = reasons(listed(tmp_path, "label_studio", files, "e.json"))
    assert (found["e.json#image=1"], found["b.jpg"]) == ("broken_row", None)


def test_tasks_of_label_studio_with_several_images_cost_themselves(tmp_path: Path) -> None:
    both = [rect(1, 1, 50, 50, "a"), rect(1, 1, 50, 50, "b", to_name="other")]
    both.append(rect(1, 1, 50, 50, "c", to_name="\ud800"))
    tasks = [
        {"data": {"image": "a.jpg"}, "annotations": [{"result": both}]},
        {"data": {"left": "a.jpg", "right": "b.jpg"}, "annotations": [{"result": []}]},
        {"data": {"image": "c.jpg"}, "annotations": [{"result": [rect(1, 1, 50, 50, "a", id={"no": "id"})]}]},
    ]
    files: Files = {"a.jpg": b"", "b.jpg": b"b", "c.jpg": b"c", "e.json": tasks}
    listing = listed(tmp_path, "label_studio", files, "e.json")
    found = reasons(listing)
    assert (found["e.json#image=1"], found["e.json#image=2"]) == ("broken_row", "broken_row")
    assert of(listing, "c.jpg")["label"] == ["a"]
    messages = " ".join(filter(None, listing.table["message"].to_pylist()))
    assert "several images: image, other" in messages
    assert "several images: a.jpg, b.jpg" in messages


def region(values: Any, **attributes: Any) -> dict[str, Any]:
    return {"shape_attributes": attributes, "region_attributes": values}


VIA: dict[str, Any] = {
    "a.jpg1234": {
        "filename": "a.jpg", "size": 1234, "file_attributes": {},
        "regions": [
            region({"kind": "cat"}, name="rect", x=10, y=5, width=20, height=30),
            region({"kind": {"dog": True, "cat": False}}, name="circle", cx=40, cy=20, r=5),
            region({"kind": "cat"}, name="ellipse", cx=40, cy=20, rx=8, ry=4, theta=0.5),
            region({"kind": "dog"}, name="polygon", all_points_x=[0, 20, 0], all_points_y=[0, 0, 10]),
            region({"kind": "dog"}, name="point", cx=1, cy=1),
            region({"kind": "dog"}, name="polyline", all_points_x=[0, 20], all_points_y=[0, 0]),
            region({"kind": "dog"}, name="polygon", all_points_x=[0, 20, 0], all_points_y=[0, 0]),
            region({"kind": {"dog": True, "cat": True}}, name="rect", x=1, y=1, width=2, height=2),
            region({}, name="rect", x=1, y=1, width=2, height=2),
            region({"kind": "dog"}, name="rect", x=1, y=1, width="wide", height=2),
            "no region",
        ],
    },
    "b.jpg9": {"filename": "sub/b.jpg", "size": 9, "file_attributes": {}, "regions": {}},
    "c.jpg9": {"filename": "", "size": 9, "file_attributes": {}, "regions": []},
}  # fmt: skip


def as_csv(images: Mapping[str, Any]) -> str:
    sink = io.StringIO()
    writer = csv.writer(sink)
    writer.writerow(["#filename", "file_size", "file_attributes", "region_count", "region_id",
                     "region_shape_attributes", "region_attributes"])  # fmt: skip
    for image in images.values():
        some = [one for one in image["regions"] if isinstance(one, dict)]
        for at, one in enumerate(some or [region({})]):
            values = json.dumps(one["shape_attributes"]), json.dumps(one["region_attributes"])
            writer.writerow([image["filename"], image["size"], "{}", len(some), at, *values])
    return sink.getvalue()


@pytest.mark.parametrize("form", ["annotations", "project", "csv"])
def test_via(form: str, tmp_path: Path) -> None:
    document = {"_via_settings": {}, "_via_img_metadata": VIA} if form == "project" else VIA
    name = "via.csv" if form == "csv" else "via.json"
    files: Files = {
        "photos/a.jpg": b"a",
        "photos/sub/b.jpg": b"b",
        name: as_csv(VIA) if form == "csv" else document,
    }
    listing = listed(tmp_path, "via", files, name)
    found = of(listing, "photos/a.jpg")
    assert found["label"] == ["cat", "dog", "cat", "dog"]
    assert found["num_left_out"] == (4 if form == "csv" else 5)
    assert found["bbox"][:4] == [5, 10, 35, 30]
    circle, ellipse, polygon = rings(found)
    assert is_ellipse(circle, 40, 20, 5, 5, 0)
    assert is_ellipse(ellipse, 40, 20, 8, 4, 0.5)
    np.testing.assert_array_equal(sorted(polygon.tolist()), [[0, 0], [0, 20], [10, 0]])
    assert of(listing, "photos/sub/b.jpg")["label"] == []
    assert reasons(listing)[f"{name}#image=3"] == "bad_path"
    assert all(part in " ".join(listing.warnings) for part in ("polyline", "point", "2 without a class"))
    assert settled(asked(tmp_path)).config.source.kind == "via"


def test_projects_of_the_third_via(tmp_path: Path) -> None:
    def noted(view: str, xy: Any, value: Any = "1") -> dict[str, Any]:
        return {"vid": view, "flg": 0, "z": [], "xy": xy, "av": {"1": value}}

    shapes: list[Any] = [
        [2, 1.5, 2, 10, 4], [3, 40, 20, 8], [4, 40, 20, 8, 4], [7, 0, 0, 20, 0, 0, 10],
        [8, 1, 5, 9, 5, 4, 2, 4, 7], [1, 3, 3], [5, 0, 0, 1, 1], [2, 1, "x", 1, 1], "text",
        [9, 1, 1, 2, 2, 3, 3],
    ]  # fmt: skip
    document = {
        "project": {"pname": "p", "vid_list": ["1", "2"]},
        "config": {},
        "attribute": {"1": {"aname": "kind", "type": 4, "options": {"1": "cat", "2": "dog"}}},
        "file": {
            "7": {"fid": "7", "fname": "a.jpg", "type": 2},
            "8": {"fid": "8", "fname": "b.jpg", "type": 2},
            "9": {"fid": "9", "fname": "c.mp4", "type": 4},
        },
        "view": {"1": {"fid_list": ["7"]}, "2": {"fid_list": ["8"]}, "3": {"fid_list": ["9"]}},
        "metadata": {str(at): noted("1", xy, "2" if at else "1") for at, xy in enumerate(shapes)}
        | {"v": noted("3", [2, 1, 1, 2, 2]), "w": noted("2", [])},
    }
    written(tmp_path, {"a.jpg": b"", "b.jpg": b"", "p.json": document})
    request = settled(asked(tmp_path))
    assert request.config.source.kind == "via"
    listing = kind_module(request.config).list_inputs(SourceFolder(str(tmp_path)), request.config)
    found = of(listing, "a.jpg")
    assert found["label"] == ["cat", "dog", "dog", "dog", "dog"]
    boxes = np.reshape(found["bbox"], (-1, 4))
    np.testing.assert_allclose(
        boxes, [[2, 1.5, 6, 11.5], [12, 32, 28, 48], [16, 32, 24, 48], [0, 0, 10, 20], [2, 1, 7, 9]]
    )
    assert found["num_left_out"] == 3
    assert of(listing, "b.jpg")["label"] == []


def test_broken_entries_of_via_cost_themselves(tmp_path: Path) -> None:
    good = region({"kind": "cat"}, name="rect", x=1, y=1, width=2, height=2)
    images = {"a.jpg1": {"filename": "a.jpg", "size": 1, "regions": [good]}}
    files: Files = {"a.jpg": b"", "v.json": images | {"b": {"size": 1}, "c": 7}}
    listing = listed(tmp_path, "via", files, "v.json")
    assert of(listing, "a.jpg")["label"] == ["cat"]
    assert [reasons(listing)[f"v.json#image={at}"] for at in (2, 3)] == ["bad_path", "bad_path"]
    text = as_csv(images) + "a.jpg,1,{},2,1,{broken,{}\r\n"
    found = of(listed(tmp_path, "via", {"v.csv": text}, "v.csv"), "a.jpg")
    assert (found["label"], found["num_left_out"]) == (["cat"], 1)


def test_attributes_of_via_that_may_be_the_class_are_asked_about(tmp_path: Path) -> None:
    one = region({"kind": "cat", "colour": "red"}, name="rect", x=1, y=1, width=2, height=2)
    files: Files = {"a.jpg": b"", "v.json": {"a.jpg1": {"filename": "a.jpg", "size": 1, "regions": [one]}}}
    with pytest.raises(ConfigError, match="'kind', 'colour'") as caught:
        listed(tmp_path, "via", files, "v.json")
    assert "source.columns.label=colour" in str(caught.value.remedy)
    with pytest.raises(ConfigError, match="'color', which no region"):
        listed(tmp_path, "via", {}, "v.json", columns={"label": "color"})
    listing = listed(tmp_path, "via", {}, "v.json", columns={"label": "colour"})
    assert of(listing, "a.jpg")["label"] == ["red"]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"a": 1}', '{"project": {}, "config": {}, "metadata": {}}', '{"a": {}}']
)
def test_what_is_no_file_of_via_is_refused_by_name(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"v\.json"):
        listed(tmp_path, "via", {"v.json": text}, "v.json")


RECOGNISED: dict[str, tuple[Files, str]] = {
    "labelme": ({"x/a.jpg": b"", "x/a.json": LABELME, "y/b.jpg": b"", "y/b.json": labelme()}, "x/*.json"),
    "cvat": ({"images/a.jpg": b"", "annotations.xml": CVAT}, "annotations.xml"),
    "label_studio": ({"images/a.jpg": b"", "project-1.json": TASKS}, "project-1.json"),
}


@pytest.mark.parametrize("kind", RECOGNISED)
def test_tools_are_recognised(kind: str, tmp_path: Path) -> None:
    files, annotations = RECOGNISED[kind]
    source = settled(asked(written(tmp_path, files))).config.source
    assert (source.kind, source.objects.annotations[0].file) == (kind, annotations)


def test_two_exports_of_a_project_are_asked_about(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"several ways|several kinds") as caught:
        settled(asked(written(tmp_path, {"a.jpg": b"", "1.json": TASKS, "2.json": TASKS})))
    assert '{file = "2.json"}' in str(caught.value.remedy)
    files: Files = {"train/a.jpg": b"", "train/t.json": TASKS, "val/t.json": TASKS}
    source = settled(asked(written(tmp_path / "splits", files))).config.source
    assert [part.split for part in source.objects.annotations] == ["train", "validation"]


@pytest.mark.parametrize(
    ("kind", "is_upright"), [("coco", False), ("voc", False), ("cvat", True), ("labelme", True)]
)
def test_tools_that_show_images_upright_have_boxes_of_upright_images(kind: str, is_upright: bool) -> None:
    """Where EXIF turns the file by 180°, so that the size does not tell."""
    for coordinates, expected in ((None, is_upright), ("stored", False), ("upright", True)):
        objects = {"annotations": "a", "coordinates": coordinates}
        config = PrepareConfig.model_validate({"source": {"kind": kind, "objects": objects}})
        assert config.source.has_upright_boxes == expected
        told = config.source.effective()["objects"]["coordinates"]
        assert told == ("upright" if expected else "stored")
