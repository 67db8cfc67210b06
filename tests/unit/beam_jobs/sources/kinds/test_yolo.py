"""The listings of YOLO datasets: their layouts, descriptions and label files, and what is wrong in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds import yolo
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.recognition.recognising import settled
from shardmill.beam_jobs.tables.features import features_of
from shardmill.infra.errors import ConfigError, NotFoundError
from shardmill.infra.format.known_features import key_points
from tests.samples.images.photos import write
from tests.samples.sources.requests import asked

BOX = b"0 0.5 0.5 0.2 0.4\n"
YAML = b"train: images/train\nval: images/val\nnames: [cat, dog]\n"


def listed(folder: Path, files: Mapping[str, bytes | str], **source: Any) -> Listing:
    write(folder, {name: data.encode() if isinstance(data, str) else data for name, data in files.items()})
    config = PrepareConfig.model_validate({"source": {"kind": "yolo", **source}})
    return yolo.list_inputs(SourceFolder(str(folder)), config)


def splits(listing: Listing) -> dict[str, tuple[str | None, int]]:
    """Image -> split and number of objects."""
    rows = listing.table.to_pylist()
    return {
        row["uri"]: (row["split"], len(row["feature:objects/label"])) for row in rows if row["reason"] is None
    }


def reasons(listing: Listing) -> dict[str, str]:
    return {row["uri"]: row["reason"] for row in listing.table.to_pylist() if row["reason"] is not None}


def of(listing: Listing, uri: str, *names: str) -> list[Any]:
    (row,) = (row for row in listing.table.to_pylist() if row["uri"] == uri)
    return [row[f"feature:objects/{name}"] for name in names]


LAYOUTS: dict[str, dict[str, bytes]] = {
    "of ultralytics": {
        "data.yaml": YAML, "images/train/a.jpg": b"", "labels/train/a.txt": BOX,
        "images/val/deep/b.JPG": b"", "labels/val/deep/b.txt": BOX,
    },
    "of Roboflow": {
        "data.yaml": b"train: ../train/images\nval: ../valid/images\ntest: ../test/images\nnames: ['a']",
        "train/images/a.jpg": b"", "train/labels/a.txt": BOX, "valid/images/b.jpg": b"",
        "valid/labels/b.txt": BOX, "README.roboflow.txt": b"0 1 2",
    },
    "of Darknet": {
        "obj.data": b"classes = 1\ntrain = data/train.txt\nvalid = data/valid.txt\nnames = data/obj.names\n",
        "obj.names": b"cat\n", "train.txt": b"data/obj_train_data/a.jpg\n", "valid.txt": b"data/obj/b.png\n",
        "obj_train_data/a.jpg": b"", "obj_train_data/a.txt": BOX, "obj/b.png": b"", "obj/b.txt": BOX,
    },
    "without a description": {
        "images/train/a.jpg": b"", "labels/train/a.txt": BOX, "images/val2017/b.jpg": b"",
        "labels/val2017/b.txt": BOX, "classes.txt": b"cat\n",
    },
    "of Label Studio": {
        "classes.txt": b"cat\n", "notes.json": b'{"categories": [{"id": 0, "name": "cat"}], "info": {}}',
        "images/train/1a-a.jpg": b"", "labels/train/1a-a.txt": BOX, "images/val/b.jpg": b"",
        "labels/val/b.txt": BOX,
    },
    "labels beside images, in splits": {
        "train/a.jpg": b"", "train/a.txt": BOX, "valid/b.jpg": b"", "valid/b.txt": BOX,
        "train/classes.txt": b"cat\n", "valid/classes.txt": b"cat\n",
    },
    "lists, with a root of another machine": {
        "d/dataset.yaml": b"path: /home/me/sets/d\ntrain: [a.txt, b.txt]\nval: val.txt\nnames: {0: cat}",
        "d/a.txt": b"./images/a.jpg\n", "d/b.txt": b"\xef\xbb\xbf\n", "d/val.txt": b"/content/d/images/b.jpg",
        "d/images/a.jpg": b"", "d/labels/a.txt": BOX, "d/images/b.jpg": b"", "d/labels/b.txt": BOX,
    },
    "images deep below other images": {
        "data.yaml": b"path: .\ntrain: images/x/images\nval: images/y\nnames: [a]\nnc: 1",
        "images/x/images/a.jpg": b"", "images/x/labels/a.txt": BOX, "images/y/b.jpg": b"",
        "labels/y/b.txt": BOX,
    },
}  # fmt: skip


WITH_MORE = ("of Roboflow", "of Label Studio")  # a README or notes, which are ignored


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_are_recognised_and_read(name: str, tmp_path: Path) -> None:
    listing = listed(tmp_path, LAYOUTS[name])
    found = sorted((split or "", count) for split, count in splits(listing).values())
    assert found == [("train", 1), ("validation", 1)]
    described = {"sidecar": 0, "table": 0, "not_in_table": 0} | {
        reason: list(reasons(listing).values()).count(reason) for reason in set(reasons(listing).values())
    }
    assert described["sidecar"] == 2
    assert described.keys() == {
        "sidecar",
        "table",
        "not_in_table",
        *(["ignored"] if name in WITH_MORE else []),
    }
    assert settled(asked(tmp_path)).config.source.kind == "yolo"
    masks = {"labels": "mask", "masks": {"classes": ["background", "cat"]}}
    assert settled(asked(tmp_path, **masks)).config.source.kind == "yolo"


def test_every_file_has_a_row_and_every_lost_row_is_counted(tmp_path: Path) -> None:
    rows = [
        "0 0.5 0.5 0.2 0.4", "1 0.25 0.25 0.5 0.5", "0 0.5 0.5 0.2 0.4", "", "2 0.5 0.5 0.1 0.1",
        "0 0.5 0.5 1.2 0.1", "0 -0.2 0.5 0.1 0.1", "0 0.5 0.5 -0.001 0.1", "0 0.5 0.5 0.1",
        "0 0.5 0.5 0.1 0.1 0.9", "0 nan 0.5 0.1 0.1", "0 0.5 inf 0.1 0.1", "x 0.5 0.5 0.1 0.1",
        "0.5 0.5 0.5 0.1 0.1", "-1 0.5 0.5 0.1 0.1",
        "0 0.5 0.5 0 0.1", "1.0 1.005 0.5 0.2 0.1", "1e400 0.5 0.5 0.1 0.1",
        "0 1e10 0 1 0 1 1",
    ]  # fmt: skip
    files: dict[str, bytes | str] = {
        "data.yaml": YAML, "images/train/a.jpg": b"", "labels/train/a.txt": "\ufeff" + "\r\n".join(rows),
        "images/train/empty.jpg": b"", "labels/train/empty.txt": b" \n", "images/val/missing.jpg": b"",
        "images/val/odd.jpg": b"", "labels/val/odd.txt": b"\xff\xfe0", "labels/val/gone.txt": BOX,
        "labels/val/notes.txt": b"look again at b", "extra/c.jpg": b"",
    }  # fmt: skip
    listing = listed(tmp_path, files)
    assert splits(listing) == {
        "images/train/a.jpg": ("train", 3),
        "images/train/empty.jpg": ("train", 0),
        "images/val/missing.jpg": ("validation", 0),
    }
    boxes, names, lost = of(listing, "images/train/a.jpg", "bbox", "label", "num_left_out")
    np.testing.assert_allclose(
        np.reshape(boxes, (-1, 4)),
        [[0.3, 0.4, 0.7, 0.6], [0, 0, 0.5, 0.5], [0.45, 0.905, 0.55, 1]],
        rtol=0, atol=2**-24,
    )  # fmt: skip
    assert (names, lost) == (["cat", "dog", "dog"], 15)
    assert reasons(listing) == {
        "data.yaml": "table", "extra/c.jpg": "not_in_table", "labels/train/a.txt": "sidecar",
        "labels/train/empty.txt": "sidecar", "labels/val/odd.txt": "sidecar",
        "images/val/odd.jpg": "not_in_table", "labels/val/odd.txt#image=1": "broken_row",
        "labels/val/gone.txt": "ignored", "labels/val/gone.txt#image=1": "missing_file",
        "labels/val/notes.txt": "ignored",
    }  # fmt: skip
    assert listing.warnings == [
        "1 image without a label file, so without objects (first images/val/missing.jpg)",
        ("15 of 18 objects are left out: 4 beyond their image by more than a hundredth (first "
        "labels/train/a.txt, line 6), 1 of a class without a name (first labels/train/a.txt, line 5), 4 that "
        "are not rows of finite numbers (first labels/train/a.txt, line 11), 1 that repeat an earlier row of "
        "their file (first labels/train/a.txt, line 3), 2 whose class is no whole number (first "
        "labels/train/a.txt, line 14), 2 with a wrong number of values (first labels/train/a.txt, line 9), 1 "
        "without an area"),
    ]  # fmt: skip


DESCRIBED: dict[str, tuple[bytes, list[str]]] = {
    "a list": (b"names: [no, 2, 'x y']", ["no", "2"]),
    "numbers": (b"names: {1: b, 0: a}", ["a", "b"]),
    "texts of numbers": (b"names: {'0': a, '1': b}", ["a", "b"]),
    "a number of classes": (b"nc: 2", ["class_0", "class_1"]),
    "a number that differs": (b"nc: 5\nnames: [a, b]", ["a", "b"]),
}


@pytest.mark.parametrize("name", DESCRIBED)
def test_names_of_classes(name: str, tmp_path: Path) -> None:
    text, names = DESCRIBED[name]
    files = {"images/a.jpg": b"", "labels/a.txt": BOX + b"1 0.5 0.5 0.1 0.1"}
    listing = listed(tmp_path, {**files, "data.yaml": b"train: images\nval:\n" + text})
    assert of(listing, "images/a.jpg", "label") == [names]
    assert any("nc = 5" in warning for warning in listing.warnings) == ("differs" in name)
    given = {"columns": {"class_names": ["one", "two"]}}
    assert of(listed(tmp_path, {}, **given), "images/a.jpg", "label") == [["one", "two"]]


def test_names_may_be_in_a_file_of_their_own(tmp_path: Path) -> None:
    files = {
        "images/a.jpg": b"",
        "labels/a.txt": BOX,
        "data.yaml": b"train: images",
        "classes.txt": b"cat\ndog",
    }
    assert of(listed(tmp_path, files), "images/a.jpg", "label") == [["cat"]]
    assert settled(asked(tmp_path)).config.source.kind == "yolo"


def test_numbers_name_the_classes_where_nothing_else_does(tmp_path: Path) -> None:
    listing = listed(tmp_path, {"images/a.jpg": b"", "labels/a.txt": BOX})
    assert of(listing, "images/a.jpg", "label") == [["0"]]
    assert "no file names the classes" in listing.warnings[0]


def test_an_image_of_two_splits_is_not_used(tmp_path: Path) -> None:
    files = {"images/a.jpg": b"", "images/b.jpg": b"", "labels/a.txt": BOX, "val.txt": b"images/a.jpg\nx.jpg"}
    described = {"data.yaml": b"train: images\nval: val.txt\ntest: images\nnames: [a]"}
    listing = listed(tmp_path, {**files, **described})
    assert splits(listing) == {"images/b.jpg": ("train", 0)}
    lost = {uri: reason for uri, reason in reasons(listing).items() if uri.startswith(("images", "val.txt#"))}
    assert lost == {
        "images/a.jpg": "contradicting_rows", "val.txt#row=1": "contradicting_rows",
        "val.txt#row=2": "missing_file",
    }  # fmt: skip
    assert "data.yaml: test is the same as train: its images are train" in listing.warnings


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"data.yaml": b"train: photos\nnames: [a]"}, "train is photos"),
        ({"data.yaml": b"train: images\nnames: [a\n"}, "data.yaml is no YAML"),
        ({"data.yaml": b"train: images\nnames: {a: 0}"}, "no name for the class 'a'"),
        ({"data.yaml": b"train: images\nnames: [a]\nkpt_shape: [4, 4]"}, "kpt_shape"),
        ({"data.yaml": b"train: images\nnames: [a]\nkpt_shape: [3, 2]\nflip_idx: [1, 2, 0]"}, "flip_idx"),
        ({"data.yaml": b"train: images\nnames: [a]\nkpt_shape: [3, 2]"}, "wrong number of values"),
        ({"data.yaml": b"train: images\nnames: [a]\ntask: classify"}, "task 'classify'"),
        ({"a.yaml": YAML, "b.yaml": YAML}, "each describe"),
        ({"labels/a.txt": b"0 50 60 20 10"}, "beyond their image"),
        ({"labels/a.txt": b"0 0.1 0.1 0.2 0.1 0.2 0.2 0.1 0.2"}, "oriented boxes, or outlines"),
        ({"a/classes.txt": b"a", "b/classes.txt": b"b"}, "name classes differently"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(files: dict[str, bytes], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        listed(tmp_path, {"images/a.jpg": b"", "labels/a.txt": BOX, **files})


def test_a_source_without_label_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="label file"):
        listed(tmp_path, {"images/a.jpg": b""})
    with pytest.raises(ValueError, match=r"objects\.task is for kind yolo"):
        listed(tmp_path, {}, kind="coco", objects={"annotations": "a", "task": "obb"})


def read_otherwise(path: Path, per_point: int = 0) -> tuple[np.ndarray, list[np.ndarray]]:
    """Read a label file as ultralytics does, without its checks.

    Args:
        path: the file.
        per_point: numbers of a key point, or 0.

    Returns:
        Edges float32 [N, 4] (y, x, y, x), and of each row its points, y, x and maybe visibility.
    """
    boxes, points = [], []
    for line in path.read_text().splitlines():
        values = np.array(line.split()[1:], np.float32)
        if len(values) == 4 or per_point:
            (x, y, width, height) = values[:4]
            boxes.append([y - height / 2, x - width / 2, y + height / 2, x + width / 2])
            found = values[4:].reshape(-1, per_point or 2)
            points.append(np.c_[found[:, 1], found[:, 0], found[:, 2:]])
        else:
            points.append(values.reshape(-1, 2)[:, ::-1])
            boxes.append([*points[-1].min(0), *points[-1].max(0)])
    return np.array(boxes, np.float32), points


FORMS = ("detect", "segment", "obb", "pose 2", "pose 3", "mixed")


@pytest.mark.parametrize("form", FORMS)
def test_every_form_reads_as_another_reader_reads_it(form: str, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    lines = []
    for number in range(40):
        box = [*random.uniform(0.3, 0.7, 2), *random.uniform(0.1, 0.5, 2)]
        forms: dict[str, Any] = {
            "detect": box,
            "segment": random.uniform(0, 1, 2 * (3 + number % 5)),
            "obb": random.uniform(0, 1, 8),
            "pose 2": [*box, *random.uniform(0.1, 1, 2 * 5)],
            "pose 3": [*box, *np.c_[random.uniform(0, 1, (5, 2)), random.integers(0, 3, 5)].ravel()],
            "mixed": box if number % 2 else random.uniform(0, 1, 10),
        }
        lines.append(" ".join(["0", *(repr(float(value)) for value in forms[form])]))
    per_point = int(form[-1]) if form.startswith("pose") else 0
    more = f"\nkpt_shape: [5, {per_point}]" if per_point else "\ntask: obb" if form == "obb" else ""
    files: dict[str, bytes | str] = {"images/a.jpg": b"", "labels/a.txt": "\n".join(lines)}
    listing = listed(tmp_path, {**files, "data.yaml": f"train: images\nnames: [a]{more}"})
    (boxes,) = of(listing, "images/a.jpg", "bbox")
    expected, points = read_otherwise(tmp_path / "labels/a.txt", per_point)
    np.testing.assert_allclose(np.reshape(boxes, (-1, 4)), expected, rtol=0, atol=2**-23)
    columns = {name.removeprefix("feature:objects/") for name in listing.table.column_names}
    if form in ("segment", "mixed"):
        rings, counts, numbers = of(listing, "images/a.jpg", "rings", "ring_points", "polygons")
        assert rings == [min(len(each), 1) for each in points]
        assert counts == [len(each) for each in points if len(each)]
        parts = np.split(np.reshape(numbers, (-1, 2)), np.cumsum(counts)[:-1])
        for part, each in zip(parts, filter(len, points), strict=True):  # a ring may be turned round
            np.testing.assert_array_equal(np.sort(part, 0), np.sort(each, 0))
        assert any("20 objects of 40" in warning for warning in listing.warnings) == (form == "mixed")
    elif form == "obb":
        np.testing.assert_array_equal(np.ravel(points), of(listing, "images/a.jpg", "corners")[0])
    elif per_point:
        where, seen = of(listing, "images/a.jpg", "keypoints", "visibility")
        read = np.concatenate(points)
        visible = read[:, 2] if per_point == 3 else np.full(len(read), 2)
        np.testing.assert_array_equal(np.where(visible[:, None] > 0, read[:, :2], 0).ravel(), where)
        assert seen == visible.tolist()
    else:
        assert columns.isdisjoint({"rings", "keypoints", "corners"})


def test_eight_numbers_are_outlines_where_other_rows_are_longer_or_a_setting_says_so(tmp_path: Path) -> None:
    four = "0 .1 .1 .2 .1 .2 .2 .1 .2\n"
    files: dict[str, bytes | str] = {
        "images/a.jpg": b"",
        "labels/a.txt": four + "0 .5 .1 .6 .1 .5 .2\n",
        "classes.txt": b"a",
    }
    listing = listed(tmp_path, files)
    assert of(listing, "images/a.jpg", "ring_points") == [[4, 3]]
    for task, names in (("segment", {"ring_points"}), ("obb", {"corners"})):
        listing = listed(tmp_path, {"labels/a.txt": four}, objects={"task": task})
        columns = {name.removeprefix("feature:objects/") for name in listing.table.column_names}
        assert columns & {"ring_points", "corners"} == names


def test_key_points_have_the_names_and_partners_of_the_description(tmp_path: Path) -> None:
    rows = "0 .5 .5 .2 .2 .4 .4 2 1.2 .5 0 .6 .5 1\n1 .5 .5 .2 .2 .4 .4 3 .5 .5 0 .6 .5 1\n0 .5 .5 .2 .2\n"
    described = "train: images\nnames: [a, b]\nkpt_shape: [3, 3]\n"
    names = "kpt_names: {0: [nose, left eye, right eye], 1: [nose, left eye, right eye]}\n"
    files: dict[str, bytes | str] = {"images/a.jpg": b"", "labels/a.txt": rows}
    for text, points, partners in (
        (described, ("0", "1", "2"), None),
        (described + "flip_idx: [0, 2, 1]", ("0", "1", "2"), (0, 2, 1)),
        (described + names, ("nose", "left eye", "right eye"), (0, 2, 1)),
    ):
        listing = listed(tmp_path, {**files, "data.yaml": text})
        found = key_points(features_of(listing.table))
        assert found is not None
        assert (found.names, found.partners) == (points, partners)
        assert of(listing, "images/a.jpg", "visibility", "num_left_out") == [[2, 0, 1], 2]
    assert "1 whose key points have another visibility than 0, 1 and 2" in listing.warnings[-1]


def test_empty_label_files_are_recognised_by_their_description(tmp_path: Path) -> None:
    files = {"images/a.jpg": b"", "labels/a.txt": b"\n", "images/b.jpg": b"", "data.yaml": YAML}
    write(tmp_path, {**files, "images/train/c.jpg": b"", "labels/train/c.txt": b""})
    assert settled(asked(tmp_path)).config.source.kind == "yolo"


ROBOFLOW = "The dataset includes 893 images.\nObjects are annotated in YOLOv8{} format.\n"


@pytest.mark.parametrize(
    ("folder", "more", "feature"),
    [
        ("a", {"README.roboflow.txt": ROBOFLOW.format(" Oriented Object Detection")}, "corners"),
        ("road-obb", {"README.roboflow.txt": ROBOFLOW.format("")}, "ring_points"),
        ("DOTAv1.5", {}, "corners"),
        ("road.v3i.yolov8-obb", {}, "corners"),
        ("a", {"data.yaml": "path: ../sets/road-seg\ntrain: images\nnames: [a]"}, "ring_points"),
        ("road-obb", {"data.yaml": "task: segment\ntrain: images\nnames: [a]"}, "ring_points"),
    ],
)
def test_names_and_a_readme_tell_what_eight_numbers_are(
    folder: str, more: dict[str, str], feature: str, tmp_path: Path
) -> None:
    four = "0 .1 .1 .2 .1 .2 .2 .1 .2\n"
    listing = listed(tmp_path / folder, {"images/a.jpg": b"", "labels/a.txt": four, **more})
    columns = {name.removeprefix("feature:objects/") for name in listing.table.column_names}
    assert columns & {"ring_points", "corners"} == {feature}
