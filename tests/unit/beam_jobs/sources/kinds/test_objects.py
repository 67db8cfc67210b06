"""The listings of COCO and Pascal VOC annotations, with everything that is wrong with such files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds import coco, voc
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.infra.errors import ConfigError, NotFoundError
from shardmill.infra.format.features import MISSING
from tests.samples.sources.columns import with_columns

READ, FILTERED, LOST = Status.TO_READ, Status.FILTERED, Status.QUARANTINED


def configured(kind: str, annotations: Any, **objects: Any) -> PrepareConfig:
    source = {"kind": kind, **with_columns("objects", {"annotations": annotations, **objects})}
    return PrepareConfig.model_validate({"source": source})


def with_images(folder: Path, *names: str) -> SourceFolder:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"an image")
    return SourceFolder(str(folder))


def outcomes(listing: Listing) -> dict[str, tuple[int, str | None]]:
    return {row["uri"]: (row["status"], row["reason"]) for row in listing.table.to_pylist()}


def objects(listing: Listing, uri: str) -> tuple[Any, ...]:
    """Boxes, names, crowds, number left out, size and labels of an image."""
    (row,) = (row for row in listing.table.to_pylist() if row["uri"] == uri)
    names = ("bbox", "label", "is_crowd", "num_left_out", "annotated_size")
    return (*(row[f"feature:objects/{name}"] for name in names), row["feature:labels"])


COCO: dict[str, Any] = {
    "images": [
        {"id": 1, "file_name": "a.jpg", "height": 40, "width": 80},
        {"id": 2, "file_name": "./b.jpg"},
        {"id": "three", "file_name": "nothing.jpg", "height": 40, "width": 80},
        {"id": 4, "file_name": "missing.jpg"},
        {"id": 1, "file_name": "a.jpg"},
        {"file_name": "a.jpg"},
        {"id": 7},
        {"id": 8, "file_name": "../a.jpg"},
        "no object",
        {"id": 10, "file_name": "http://h/a.jpg"},
    ],
    "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}, {"id": 3, "name": "skip"}, {"id": 4}],
    "annotations": [
        {"image_id": 1, "category_id": 2, "bbox": [10, 5, 20, 30]},
        {"image_id": 2, "category_id": 1, "bbox": [1, 2, 3, 4]},
        {"image_id": 1, "category_id": 1, "bbox": [-10, 0, 20, 90.5], "iscrowd": 1},
        {"image_id": 1, "category_id": 1, "bbox": [5, 5, 0, 3]},
        {"image_id": 1, "category_id": 1, "bbox": [90, 0, 5, 5]},
        {"image_id": 1, "category_id": 3, "bbox": [0, 0, 5, 5]},
        {"image_id": 1, "category_id": 4, "bbox": [0, 0, 5, 5]},
        {"image_id": 1, "category_id": 1, "bbox": [0, 0, 5]},
        {"image_id": 1, "category_id": 1, "bbox": [0, 0, 5, "5"]},
        {"image_id": 1, "category_id": 1},
        {"image_id": 99, "category_id": 1, "bbox": [0, 0, 5, 5]},
        {"image_id": [1], "category_id": {}, "bbox": [0, 0, 5, 5]},
        "no object",
    ],
}


def test_every_image_of_a_coco_file_is_listed_with_its_good_objects(tmp_path: Path) -> None:
    source = with_images(tmp_path, "photos/a.jpg", "photos/b.jpg", "photos/nothing.jpg", "photos/nobody.jpg")
    (tmp_path / "t.json").write_text(json.dumps(COCO))
    part = {"file": "t.json", "images": "photos", "split": "validation"}
    config = configured("coco", part, drop_labels="skip", merge_labels={"dog": "pet"})
    listing = coco.list_inputs(source, config)
    assert outcomes(listing) == {
        "photos/a.jpg": (READ, None),
        "photos/b.jpg": (READ, None),
        "photos/nothing.jpg": (READ, None),
        "photos/nobody.jpg": (FILTERED, "not_in_table"),
        "t.json": (FILTERED, "table"),
        "t.json#image=4": (LOST, "missing_file"),
        "t.json#image=5": (LOST, "broken_row"),
        "t.json#image=6": (LOST, "broken_row"),
        "t.json#image=7": (LOST, "bad_path"),
        "t.json#image=8": (LOST, "bad_path"),
        "t.json#image=9": (LOST, "broken_row"),
        "t.json#image=10": (LOST, "missing_file"),
    }
    boxes = [5, 10, 35, 30, 0, 0, 40, 10]  # the second ends at the edges of its image
    assert objects(listing, "photos/a.jpg") == (boxes, ["pet", "cat"], [0, 1], 7, [40, 80], ["cat", "pet"])
    assert objects(listing, "photos/b.jpg") == ([2, 1, 6, 4], ["cat"], [0], 0, None, ["cat"])
    assert objects(listing, "photos/nothing.jpg") == ([], [], [], 0, [40, 80], [])
    assert set(listing.table["split"].to_pylist()) == {"validation", None}
    (warning,) = (text for text in listing.warnings if "left out" in text)
    assert warning == (
        "10 of 13 objects are left out: 1 of a dropped class, 1 of an unknown category (first annotation 7 "
        "of t.json: 4), 2 of an unknown image (first annotation 11 of t.json: 99), 1 outside of their image, "
        "1 that are no objects of JSON (first annotation 13 of t.json), 3 without a box of four numbers "
        "(first annotation 8 of t.json), 1 without an area"
    )


def test_ids_of_coco_files_may_be_written_as_other_numbers(tmp_path: Path) -> None:
    """As in pycocotools, where 1.0 is the key 1, and "1" is another."""
    ids: list[Any] = [0, 1.0, 2**40, "3", -4]
    document = {
        "images": [
            {"id": key, "file_name": f"{at}.jpg", "height": 40.0, "width": 80} for at, key in enumerate(ids)
        ],
        "categories": [{"id": 1.0, "name": "cat"}],
        "annotations": [
            {"image_id": key, "category_id": 1, "bbox": [1, 2, 3, 4], "iscrowd": crowd}
            for key, crowd in [
                (0.0, 1.0),
                (1, "1"),
                (float(2**40), True),
                ("3", 0),
                (-4.0, None),
                (3, 0),
                (0.5, 0),
            ]
        ],
    }
    (tmp_path / "t.json").write_text(json.dumps(document))
    source = with_images(tmp_path, *(f"{at}.jpg" for at in range(5)))
    listing = coco.list_inputs(source, configured("coco", "t.json"))
    for at, crowd in enumerate([1, 1, 1, 0, 0]):
        assert objects(listing, f"{at}.jpg") == ([2, 1, 6, 4], ["cat"], [crowd], 0, [40, 80], ["cat"])
    assert listing.warnings == [
        "2 of 7 objects are left out: 2 of an unknown image (first annotation 6 of t.json: 3)",
    ]


def test_names_of_no_class_are_told_in_annotations(tmp_path: Path) -> None:
    source = with_images(tmp_path, "1.jpg")
    (tmp_path / "1.xml").write_text(voc_file("1.jpg", voc_object("nan", 1, 1, 9, 9)))
    (warning,) = voc.list_inputs(source, configured("voc", "*.xml")).warnings
    assert warning == "'nan' sounds like no class: name it in source.columns.drop_labels if so"


def test_several_coco_files_give_splits(tmp_path: Path) -> None:
    source = with_images(tmp_path, "a.jpg", "b.jpg")
    for name in ("a", "b"):
        document = {"images": [{"id": 1, "file_name": f"{name}.jpg"}], "annotations": [], "categories": []}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    parts = [{"file": "a.json", "split": "train"}, {"file": "b.json", "split": "test"}]
    table = coco.list_inputs(source, configured("coco", parts)).table
    assert dict(zip(table["uri"].to_pylist(), table["split"].to_pylist(), strict=True)) == {
        "a.jpg": "train", "a.json": None, "b.jpg": "test", "b.json": None,
    }  # fmt: skip


def test_an_image_with_other_objects_in_another_file_is_not_used(tmp_path: Path) -> None:
    source = with_images(tmp_path, "a.jpg")
    for name, box in (("1", [0, 0, 5, 5]), ("2", [0, 0, 5, 6])):
        document = {
            "images": [{"id": 1, "file_name": "a.jpg"}],
            "annotations": [{"image_id": 1, "category_id": 1, "bbox": box}],
            "categories": [{"id": 1, "name": "cat"}],
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    found = outcomes(coco.list_inputs(source, configured("coco", "*.json")))
    assert found["a.jpg"] == found["2.json#image=1"] == (LOST, "contradicting_rows")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"images": [], "annotations": []}', '{"images": {}}'])
def test_what_is_no_coco_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(ConfigError, match=r"t\.json"):
        coco.list_inputs(SourceFolder(str(tmp_path)), configured("coco", "t.json"))


@pytest.mark.parametrize("images", [[], [{"id": 1, "file_name": "a.jpg"}]])
def test_annotations_without_a_single_image_are_refused(tmp_path: Path, images: list[Any]) -> None:
    source = with_images(tmp_path, "photos/a.jpg")
    (tmp_path / "t.json").write_text(json.dumps({"images": images, "annotations": [], "categories": []}))
    with pytest.raises(NotFoundError) as caught:
        coco.list_inputs(source, configured("coco", "t.json"))
    assert "source.objects.annotations" in str(caught.value.remedy)


def voc_file(name: str, *boxes: str, size: str = "<height>40</height><width>80</width>") -> str:
    return f"<annotation><filename>{name}</filename><size>{size}</size>{''.join(boxes)}</annotation>"


def voc_object(name: str, *edges: object, more: str = "") -> str:
    keys = ("xmin", "ymin", "xmax", "ymax")
    inner = "".join(f"<{key}>{edge}</{key}>" for key, edge in zip(keys, edges, strict=False))
    return f"<object><name>{name}</name>{more}<bndbox>{inner}</bndbox></object>"


def test_every_image_of_voc_files_is_listed_with_its_good_objects(tmp_path: Path) -> None:
    source = with_images(tmp_path, "JPEGImages/1.jpg", "JPEGImages/2.jpg", "JPEGImages/4.jpg")
    files = {
        "1": voc_file(
            "1.jpg",
            voc_object("cat", 11, 6, 30, 35),
            voc_object("dog", 1, 1, 80, 40, more="<difficult>1</difficult>"),
            voc_object("dog", 5, 5, 4, 9),
            voc_object("dog", 5, 5),
            voc_object("", 1, 1, 2, 2),
            voc_object("dog", "x", 1, 2, 2),
            "<object><name>cat</name></object>",
        ),
        "2": voc_file("", voc_object("cat", 1.5, 1, 2, 2), size=""),
        "3": voc_file("3.jpg"),
        "4": "<annotation>",
        "5": '<?xml version="1.0" encoding="nonsense"?><a/>',
    }
    for name, text in files.items():
        (tmp_path / f"Annotations/{name}.xml").parent.mkdir(exist_ok=True)
        (tmp_path / f"Annotations/{name}.xml").write_text(text)
    part = {"file": "Annotations/*.xml", "images": "JPEGImages"}
    listing = voc.list_inputs(source, configured("voc", part))
    found = {uri: outcome for uri, outcome in outcomes(listing).items() if not uri.endswith(".xml")}
    assert found == {
        "JPEGImages/1.jpg": (READ, None),
        "JPEGImages/2.jpg": (READ, None),
        "JPEGImages/4.jpg": (FILTERED, "not_in_table"),
        "Annotations/3.xml#image=1": (LOST, "missing_file"),
        "Annotations/4.xml#image=1": (LOST, "broken_row"),
        "Annotations/5.xml#image=1": (LOST, "broken_row"),
    }
    boxes = [5, 10, 35, 30, 0, 0, 40, 80]
    assert objects(listing, "JPEGImages/1.jpg") == (
        boxes,
        ["cat", "dog"],
        [0, 1],
        5,
        [40, 80],
        ["cat", "dog"],
    )
    assert objects(listing, "JPEGImages/2.jpg") == ([0, 0.5, 2, 2], ["cat"], [0], 0, None, ["cat"])


def test_the_image_of_a_voc_file_is_named_like_it(tmp_path: Path) -> None:
    """As torchvision, detectron2 and mmdetection find it."""
    names = {  # XML file -> the name in it
        "other": "elsewhere.png", "case": "case.JPG", "ending": "ending.png", "stranger": "real.jpg",
        "both": "both.png", "none": "none.jpg", "caf\u00e9": "caf\u00e9.jpg", "open": "",
    }  # fmt: skip
    images = [
        "other.jpg",
        "case.jpg",
        "ending.jpg",
        "real.jpg",
        "both.jpg",
        "both.png",
        "cafe\u0301.jpg",
        "open.jpg",
    ]
    source = with_images(tmp_path, "elsewhere.png", *images)
    for name, inside in names.items():
        (tmp_path / f"{name}.xml").write_text(voc_file(inside, voc_object(f"in {name}", 1, 1, 9, 9)))
    (tmp_path / "cvat.xml").write_text("<annotations><image name='other.jpg'/></annotations>")
    listing = voc.list_inputs(source, configured("voc", "*.xml"))
    labels = {row["uri"]: row["feature:labels"] for row in listing.table.to_pylist() if row["reason"] is None}
    assert labels == {
        "other.jpg": ["in other"], "case.jpg": ["in case"], "ending.jpg": ["in ending"],
        "real.jpg": ["in stranger"], "both.png": ["in both"], "cafe\u0301.jpg": ["in caf\u00e9"],
        "open.jpg": ["in open"],
    }  # fmt: skip
    lost = {row["uri"]: row["message"] for row in listing.table.to_pylist() if row["status"] == LOST}
    assert lost == {
        "none.xml#image=1": "the image of none.xml: there is no file none.jpg",
        "cvat.xml#image=1": "the image of cvat.xml: its file is no annotation of Pascal VOC: it begins with "
        "<annotations>",
    }
    (warning,) = (text for text in listing.warnings if "name another image" in text)
    assert warning.startswith("3 annotation files")


def test_hostile_xml_costs_its_own_row_only(tmp_path: Path) -> None:
    source = with_images(tmp_path, "a.jpg")
    bomb = '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9)
    )
    (tmp_path / "bomb.xml").write_text(f"{bomb}]><annotation><filename>&j;</filename></annotation>")
    (tmp_path / "file.xml").write_text(
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><annotation><filename>&x;</filename></annotation>'
    )
    (tmp_path / "good.xml").write_text(voc_file("a.jpg"))
    found = outcomes(voc.list_inputs(source, configured("voc", "*.xml")))
    assert found["a.jpg"] == (READ, None)
    assert found["bomb.xml#image=1"] == found["file.xml#image=1"] == (LOST, "broken_row")


def test_image_sets_give_the_splits(tmp_path: Path) -> None:
    source = with_images(tmp_path, *(f"JPEGImages/{name}.jpg" for name in "abcde"))
    annotations, sets = tmp_path / "Annotations", tmp_path / "ImageSets/Main"
    annotations.mkdir()
    sets.mkdir(parents=True)
    for name in "abcde":
        (annotations / f"{name}.xml").write_text(voc_file(f"{name}.jpg", voc_object("cat", 1, 1, 9, 9)))
    (sets / "train.txt").write_text("a\nc  1\n\nnowhere\n")
    (sets / "val.txt").write_text("b\nc\n")
    (sets / "trainval.txt").write_text("a\nb\n")
    part = {"file": "Annotations/*.xml", "images": "JPEGImages", "split": "test"}
    listing = voc.list_inputs(source, configured("voc", part, image_sets="ImageSets/Main"))
    rows = {row["uri"]: (row["split"], row["reason"]) for row in listing.table.to_pylist()}
    assert rows["JPEGImages/a.jpg"] == ("train", None)
    assert rows["JPEGImages/b.jpg"] == ("validation", None)
    assert rows["Annotations/c.xml#image=1"] == (None, "broken_row")
    assert rows["JPEGImages/d.jpg"] == ("test", None), "what the settings say of the others"
    assert rows["ImageSets/Main/train.txt"] == (None, "table")
    (message,) = (row["message"] for row in listing.table.to_pylist() if row["uri"].endswith("c.xml#image=1"))
    assert "it is in train.txt and in val.txt" in message
    assert listing.warnings[-2:] == [
        "2 annotated images in none of the lists of source.objects.image_sets",
        "1 name in the lists of source.objects.image_sets without an annotation",
    ]
    with pytest.raises(NotFoundError, match=r"holds none of train\.txt"):
        voc.list_inputs(source, configured("voc", part, image_sets="ImageSets"))


def test_image_sets_are_for_voc() -> None:
    with pytest.raises(ValueError, match="is for kind voc"):
        configured("coco", "a.json", image_sets="ImageSets/Main")
    assert "image_sets" not in configured("voc", "*.xml").source.effective()["objects"]


def test_elements_of_voc_files_are_features(tmp_path: Path) -> None:
    source = with_images(tmp_path, "1.jpg", "2.jpg", "3.jpg", "4.jpg")
    part = voc_object("head", 1, 1, 4, 4).replace("object>", "part>")
    more = f"<truncated>1</truncated><occluded>0</occluded><pose>Left</pose>{part}{part}"
    files = [
        voc_file("1.jpg", voc_object("a", 1, 1, 9, 9, more=more), voc_object("b", 2.5, 1, 9, "8.25")),
        voc_file("2.jpg", size="<width>0</width>"),
        voc_file("3.jpg", voc_object("a", 1, 1, 9, 9, more="<truncated>Unspecified</truncated>")),
    ]
    for number, text in enumerate(files, 1):
        text = text.replace("<annotation>", f"<annotation><source><database>D{number}</database></source>")
        (tmp_path / f"{number}.xml").write_text(text)
    features = {
        "database": "source/database",
        "truncated": {"column": "object/truncated", "dtype": "int64"},
        "parts": "object/part/name",
    }
    listing = voc.list_inputs(source, configured("voc", "*.xml", features=features))
    rows = {row["uri"]: row for row in listing.table.to_pylist()}
    assert [rows["1.jpg"][f"feature:{name}"] for name in features] == [
        "D1",
        [1, MISSING["int64"]],
        ["head", "head", ""],
    ]
    assert [rows["2.jpg"][f"feature:{name}"] for name in features] == ["D2", [], []]
    assert rows["4.jpg"]["reason"] == "not_in_table"
    assert "its truncated is 'Unspecified', not a whole number" in rows["3.xml#image=1"]["message"]
    assert objects(listing, "1.jpg")[:2] == ([0, 0, 9, 9, 0, 1.5, 8.25, 9], ["a", "b"])
    for wrong in ("object/truncatd", "/x", "object/*"):
        with pytest.raises(ConfigError, match=r"source\.columns\.features"):
            voc.list_inputs(source, configured("voc", "*.xml", features={"a": wrong}))
