"""Recognise annotations of objects and folders of masks; say which settings they still need."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmill.beam_jobs.config import SourceConfig
from shardmill.beam_jobs.sources import list_inputs, open_source
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.recognition.glance import glance_at
from shardmill.beam_jobs.sources.recognition.recognising import recognise, settled
from shardmill.infra.errors import ConfigError, UsageError
from tests.samples.images.photos import jpeg, write
from tests.samples.sources.requests import asked, parquet

ONE_IMAGE = b'{"images": [{"id": 1, "file_name": "t.jpg"}], "annotations": []}'


def test_the_folder_of_annotated_images_is_recognised(tmp_path: Path) -> None:
    head = b'{"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [], "categories": []}'
    write(tmp_path, {"annotations/train.json": head, "photos/big/1.jpg": b"", "0.jpg": b""})
    found = recognise(glance_at(SourceFolder(str(tmp_path))), SourceConfig())["coco"]
    (part,) = found.settings["objects"]["annotations"]
    assert part == {"file": "annotations/train.json", "images": "photos/big"}


def test_names_of_coco_files_give_the_splits(tmp_path: Path) -> None:
    head = b'{"images": [{"id": 1, "file_name": "%d.jpg"}], "annotations": [], "categories": []}'
    beside = ("person_keypoints_val2017", "captions_train2017", "stuff_val2017")
    files = dict.fromkeys(("instances_train2017", "instances_val2017", *beside), 1)
    write(tmp_path, {f"annotations/{name}.json": head % at for name, at in files.items()})
    write(tmp_path, {"train2017/1.jpg": b"", "val2017/1.jpg": b""})
    found = recognise(glance_at(SourceFolder(str(tmp_path))), SourceConfig())["coco"]
    assert "their names give the splits" in found.why
    assert [tuple(part.values()) for part in found.settings["objects"]["annotations"]] == [
        ("annotations/instances_train2017.json", "train2017", "train"),
        ("annotations/instances_val2017.json", "val2017", "validation"),
        ("annotations/person_keypoints_val2017.json", "val2017", "validation"),
        ("annotations/captions_train2017.json", "train2017", "train"),
    ]
    assert found.why.endswith("not read: 'annotations/stuff_val2017.json'")
    write(tmp_path, {"annotations/instances_more_train.json": head % 1})
    assert len(recognise(glance_at(SourceFolder(str(tmp_path))), SourceConfig())["coco"].readings) == 3
    with pytest.raises(UsageError, match="may be of several kinds: coco") as caught:  # two for train
        settled(asked(tmp_path))
    named = (
        """'source.objects.annotations=[{file = "annotations/instances_val2017.json", images = "val2017"}]'"""
    )
    assert named in str(caught.value.remedy)


def test_image_sets_of_voc_are_recognised(tmp_path: Path) -> None:
    write(tmp_path, {"Annotations/1.xml": b"<annotation><filename>1.jpg</filename></annotation>"})
    write(tmp_path, {"JPEGImages/1.jpg": b"", "ImageSets/Main/train.txt": b"1\n"})
    found = recognise(glance_at(SourceFolder(str(tmp_path))), SourceConfig())["voc"]
    assert found.settings["objects"]["image_sets"] == "ImageSets/Main"
    assert "ImageSets/Main give the splits" in found.why


def test_the_development_kits_of_voc_are_recognised(tmp_path: Path) -> None:
    for year, number in (("VOC2007", 1), ("VOC2012", 2)):
        files = {f"Annotations/{number}{at:02}.xml": b"<annotation/>" for at in range(25)}
        files |= {f"JPEGImages/{number}{at:02}.jpg": b"" for at in range(25)}
        files |= {"SegmentationClass/100.png": b"", "SegmentationObject/100.png": b""}
        files |= {f"ImageSets/{name}/train.txt": b"%d00\n" % number for name in ("Main", "Segmentation")}
        files |= {"ImageSets/Main/cat_train.txt": b"100  1\n"}
        write(tmp_path, {f"VOCdevkit/{year}/{name}": content for name, content in files.items()})
        request = settled(asked(tmp_path))
        places = ("VOCdevkit/VOC2007/ImageSets/Main", "VOCdevkit/*/ImageSets/Main")
        assert request.config.source.kind == "voc"
        assert request.config.source.objects.image_sets == places[number - 1]
    assert [part.images for part in request.config.source.objects.annotations] == [
        "VOCdevkit/VOC2007/JPEGImages",
        "VOCdevkit/VOC2012/JPEGImages",
    ]
    rows = list_inputs(open_source(request), request.config).table.to_pylist()
    splits = {row["uri"].rpartition("/")[2]: row["split"] for row in rows if row["reason"] is None}
    assert len(splits) == 50
    assert {name for name, split in splits.items() if split == "train"} == {"100.jpg", "200.jpg"}
    source = settled(asked(tmp_path, masks={"classes": ["background", "cat"]})).config.source
    assert (source.kind, source.masks.image_sets) == ("masks", "VOCdevkit/*/ImageSets/Segmentation")


def test_images_that_a_glance_does_not_show_are_looked_up(tmp_path: Path) -> None:
    write(tmp_path, {"instances.json": ONE_IMAGE} | {f"photos/{number:03}.jpg": b"" for number in range(450)})
    write(tmp_path, {"photos/t.jpg": b"x"})
    found = recognise(glance_at(SourceFolder(str(tmp_path))), SourceConfig())
    assert list(found) == ["coco"]
    assert found["coco"].settings["objects"]["annotations"][0]["images"] == "photos"


@pytest.mark.parametrize(
    "folders", [("images", "masks"), ("train/images", "train/masks"), ("images/val", "masks/val")]
)
def test_masks_are_recognised_and_need_their_classes(folders: tuple[str, str], tmp_path: Path) -> None:
    images, masks = folders
    write(tmp_path, {f"{images}/1.jpg": b"", f"{masks}/1.png": b""})
    with pytest.raises(ConfigError, match=r"source\.masks\.classes"):
        settled(asked(tmp_path))
    source = settled(asked(tmp_path, masks={"classes": ["road", "car"]})).config.source
    assert (source.kind, source.masks.images) == ("masks", "images")
    assert settled(asked(tmp_path, labels="none")).config.source.kind == "image_folder"


def test_masks_beside_other_folders_of_images_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"images/1.jpg": b"", "masks/1.png": b"", "cat/2.jpg": b""})
    with pytest.raises(UsageError, match=r"may be of several kinds: image_folder .*; masks "):
        settled(asked(tmp_path))


BOX_LISTS: dict[str, bytes] = {
    "labels.jsonl": b'{"path": "1.jpg", "boxes": [[10, 5, 30, 35], [1, 2, 3, 4]], '
    b'"labels": ["cat", "dog"]}\n',
    "labels.parquet": parquet(
        {"path": ["1.jpg"], "boxes": [[[10.0, 5, 30, 35], [1, 2, 3, 4]]], "labels": [["cat", "dog"]]}
    ),
}


@pytest.mark.parametrize("name", BOX_LISTS)
def test_lists_of_boxes_are_recognised_once_their_numbers_have_a_meaning(tmp_path: Path, name: str) -> None:
    write(tmp_path, {"1.jpg": jpeg(1), name: BOX_LISTS[name]})
    with pytest.raises(UsageError, match=f"{name} has boxes as lists in its column 'boxes'") as error:
        settled(asked(tmp_path))
    assert "--set source.objects.table.box_format=xyxy" in str(error.value.remedy)
    request = settled(asked(tmp_path, objects={"table": {"box_format": "xyxy"}}))
    source = request.config.source
    assert source.kind == "box_table"
    assert (source.columns.image, source.columns.label) == ("path", "labels")
    assert source.objects.table.box_columns == ("boxes",)
    (row,) = [
        row
        for row in list_inputs(open_source(request), request.config).table.to_pylist()
        if row["uri"] == "1.jpg"
    ]
    assert row["feature:labels"] == ["cat", "dog"]


def test_a_row_an_object_with_its_box_as_a_list(tmp_path: Path) -> None:
    rows = b'image,bbox,class\n1.jpg,"[1, 2, 30, 20]",cat\n1.jpg,"[5, 5, 9, 9]",dog\n'
    write(tmp_path, {"1.jpg": jpeg(1), "boxes.csv": rows})
    request = settled(asked(tmp_path, objects={"table": {"box_format": "xywh"}}))
    source = request.config.source
    assert (source.kind, source.objects.table.box_columns, source.columns.label) == (
        "box_table", ("bbox",), "class",
    )  # fmt: skip


def test_boxes_stay_boxes_where_the_reading_of_the_table_is_given(tmp_path: Path) -> None:
    rows = b"path;label;xmin;ymin;xmax;ymax\n1.jpg;cat;1;1;9;9\n"
    write(tmp_path, {"1.jpg": jpeg(1), "boxes.csv": rows})
    source = settled(asked(tmp_path, table={"delimiter": ";"})).config.source
    assert (source.kind, source.table.delimiter) == ("box_table", ";")
    as_table = settled(asked(tmp_path, table={"file": "boxes.csv"})).config.source
    assert as_table.kind == "table", "box_table takes no source.table.file"


@pytest.mark.parametrize("below", ["", "labels/boxes/"])
def test_open_images_is_recognised_with_its_names_and_lists(tmp_path: Path, below: str) -> None:
    header = b"ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsGroupOf\n"
    row = b"%s,xclick,/m/0cmf2,1,0.1,0.5,0.2,0.6,0,1\n"
    listed = b"ImageID,Subset,OriginalURL\n%s,x,http://h/a\n%s,x,http://h/b\n"
    write(
        tmp_path,
        {
            f"{below}train-annotations-bbox.csv": header + row % b"0a" + row % b"0a",
            f"{below}validation-annotations-bbox.csv": header + row % b"0a",
            "class-descriptions-boxable.csv": b"/m/011k07,Tortoise\n/m/0cmf2,Airplane\n",
            "validation-images.csv": listed % (b"0a", b"0b"),
            "train/data/0a.jpg": jpeg(1), "validation/data/0a.jpg": jpeg(2),
            "validation/data/0b.jpg": jpeg(3),
        },
    )  # fmt: skip
    request = settled(asked(tmp_path))
    source = request.config.source
    assert source.kind == "box_table"
    assert [(part.images, part.split, part.image_list) for part in source.objects.annotations] == [
        ("train/data", "train", None),
        ("validation/data", "validation", "validation-images.csv"),
    ]
    listing = list_inputs(open_source(request), request.config)
    rows = {row["uri"]: row for row in listing.table.to_pylist()}
    assert rows["train/data/0a.jpg"]["feature:objects/label"] == ["Airplane", "Airplane"]
    assert rows["validation/data/0a.jpg"]["feature:objects/is_crowd"] == [1]
    assert rows["validation/data/0b.jpg"]["feature:objects/label"] == []
    assert listing.warnings == []
