"""Folders that are hardly classes, and sources that can be read in several ways: the user is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.sources import list_inputs, open_source
from shardmill.beam_jobs.sources.recognition.recognising import settled
from shardmill.infra.errors import ConfigError, UsageError
from tests.samples.images.photos import write
from tests.samples.sources.archives import make_tar, make_zip
from tests.samples.sources.requests import asked, parquet

VOC = b"<annotation><filename>1.jpg</filename></annotation>"
COCO = b'{"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [], "categories": []}'
YOLO = b"0 0.5 0.5 0.2 0.2\n"
DATA = b"train: images\nnames: [a]\n"
CLASSES, NO_LABELS = "source.layout=classes", "source.labels=none"

# Names of files, by their content, and what the remedy says.
ASKED: dict[str, tuple[dict[str, bytes], tuple[str, ...]]] = {
    "two tables": (
        dict.fromkeys(("a.csv", "b.csv"), b"id,label\n1,a\n") | {"images/1.png": b""},
        ("source.table.file=a.csv", "source.table.file=b.csv", "source.table.prefix=images"),
    ),
    "two descriptions of YOLO": (
        {"images/0.jpg": b"", "labels/0.txt": YOLO, "a.yaml": DATA, "b.yaml": DATA + b"nc: 1"},
        ("source.objects.annotations=b.yaml",),
    ),
    "YOLO beside a folder of images": (
        {"images/0.jpg": b"", "labels/0.txt": YOLO, "cat/1.jpg": b""},
        ("--source-kind yolo", CLASSES),
    ),
    "folders around the classes": (
        {"data/images/cat/1.jpg": b""},
        (CLASSES, "/data/images as the source if 'cat'"),
    ),
    "a folder around splits": (
        {"photos/train/cat/1.jpg": b"", "photos/val/cat/2.jpg": b""},
        (CLASSES, "/photos as the source if 'train', 'val'"),
    ),
    "one folder": ({"images/1.jpg": b""}, (CLASSES, NO_LABELS)),
    "a class named images": ({"cat/1.jpg": b"", "images/3.jpg": b""}, (CLASSES,)),
    "a folder of labels": ({"cat/1.jpg": b"", "dog/1.jpg": b"", "labels/1.bin": b""}, (CLASSES,)),
    "ImageNet": (
        {f"Data/train/{name}/1.jpg": b"" for name in ("n1", "n2")}
        | {f"Annotations/train/{name}/1.xml": VOC for name in ("n1", "n2")},
        ('source.options.folders={"Data/train" = "train"}', "--source-kind voc"),
    ),
    "two of COCO": (
        {"annotations/a.json": COCO, "annotations/b.json": COCO, "train2017/1.jpg": b""},
        ('{file = "annotations/b.json", images = "train2017"}',),
    ),
    "two of VOC": (
        {f"{year}/{name}": data for year in "78" for name, data in (("A/1.xml", VOC), ("JPEG/1.jpg", b""))},
        ('{file = "8/A/*.xml", images = "8/JPEG"}',),
    ),
    "labels that may be masks": ({"images/1.png": b"", "labels/1.png": b""}, ("source.masks.masks=labels",)),
    "years": ({"train2017/1.jpg": b"", "val2017/2.jpg": b""}, (CLASSES, NO_LABELS)),
    "numbered folders of images and texts": (
        {f"training/{name}": b"" for name in ("image_2/0.png", "image_2/1.png", "label_2/0.txt")},
        ("source.layout=splits", NO_LABELS),
    ),
    "letters above the classes": (
        {f"{name}/1.jpg": b"" for name in ("a/abbey", "a/airport", "b/bar", "o/oast_house")},
        (CLASSES, "source.options.folders.o="),
    ),
    "boxes in a text beside folders of classes": (
        {f"photos/{name}/{name}_{at}.jpg": b"" for name in ("parade", "sea") for at in (1, 2)}
        | {"faces.txt": b"parade/parade_1.jpg\n1\n4 5 12 14 0\nsea/sea_1.jpg\n1\n1 2 3 4 0\n"},
        ("source.options.folders.photos=", NO_LABELS),
    ),
    "images and labels by their words": (
        dict.fromkeys(("Ped/PNGImages/1.png", "Ped/PNGImages/2.png", "Ped/PedMasks/1_mask.png"), b""),
        ("source.options.folders.Ped=", NO_LABELS),
    ),
    "frames of videos, and their masks": (
        {
            f"{of}/480p/{name}/0.{end}": b""
            for of, end in (("JPEGImages", "jpg"), ("Annotations", "png"))
            for name in ("bear", "boat")
        },
        ("source.options.folders", NO_LABELS),
    ),
    "sequences of a tracker": (
        {f"train/{name}/{of}": b"" for name in ("MOT-02", "MOT-04") for of in ("img1/1.jpg", "gt/gt.txt")},
        ("source.layout=splits", NO_LABELS),
    ),
    "two folders of texts about the same images": (
        {"images/1.png": b"", "new/1.txt": b"1,1,2,2,1,4,0,0\n", "old/1.txt": b"1,1,3,3,1,4,0,0\n"},
        ('{file = "new/*.txt", images = "images"}', '{file = "old/*.txt"', NO_LABELS),
    ),
    "sequences with a text each": (
        {f"frames/{name}/1.jpg": b"" for name in ("uav1", "uav2")}
        | {f"notes/{name}.txt": b"1,1,1,1,4,4,1,4,0,0\n" for name in ("uav1", "uav2")},
        ("source.options.folders.frames=", NO_LABELS),
    ),
    "frames of videos": (
        {f"frames/v_{name}/frame{at:05}.jpg": b"" for name in ("run", "walk") for at in (1, 2)},
        ("source.options.folders.frames=", NO_LABELS),
    ),
    "pairs of images": ({"left/1.png": b"", "right/1.png": b""}, (CLASSES, NO_LABELS)),
    "parts of a folder": (
        {f"thumbnails/{name}.png": b"" for name in ("00000/00001", "00000/00002", "01000/01000")},
        ("source.options.folders.thumbnails=", NO_LABELS),
    ),
    "named parts of a folder": ({"VG/1.jpg": b"", "VG_2/2.jpg": b""}, (CLASSES, NO_LABELS)),
    "points beside each image": (
        {f"{name}/1.{end}": b"" for name in ("helen", "ibug") for end in ("jpg", "pts")},
        (CLASSES, NO_LABELS),
    ),
    "images that a text of another form names": (
        {f"faces/{name}/{name}_{at}.jpg": b"" for name in ("parade", "sea") for at in (1, 2)}
        | {"points.json": b'{"a": "parade/parade_1.jpg", "b": ["sea/sea_2.jpg"]}'},
        ("source.options.folders.faces=", NO_LABELS),
    ),
    "domains above folders of images": (
        {f"{name}/images/{of}/frame_1.jpg": b"" for name in ("amazon", "webcam") for of in ("mug", "bike")},
        ("source.options.folders", "amazon/images", CLASSES),
    ),
    "answers of another column": (
        {
            "images/1.jpg": b"",
            "train.csv": b"id,category,price\n1,hat,2.5\n",
            "test.csv": b"id,category\n2,hat\n",
        }
        | {"images/2.jpg": b"", "sample_submission.csv": b"id,price\n2,0\n"},
        ("source.table.file=train.csv",),
    ),
    "flags of the test alone": (
        {"train/1.jpg": b"", "test/2.jpg": b"", "train.csv": b"Id,Eyes,Face,Score\n1,0,1,63\n"}
        | {"test.csv": b"Id,Eyes,Face\n2,0,1\n"},
        ("source.table.file=train.csv", NO_LABELS),
    ),
    "run lengths": (
        {"images/1.jpg": b"", "train.csv": b"ImageId,ClassId,EncodedPixels\n1.jpg,3,1 4 9 2\n"},
        ("source.table.file=train.csv",),
    ),
    "classes far below": (
        {f"1/2/3/4/5/6/{name}/8/9/1.png": b"" for name in ("benign", "malignant")},
        ("benign",),
    ),
    "a table with other columns": (
        {"photos/1.jpg": b"", "info.csv": b"fname,breed,fur\n1.jpg,cat,red\n"},
        (CLASSES, "source.table.file=info.csv"),
    ),
    "captions": (
        {"train/metadata.csv": b"file_name,text\n0.png,a b\n", "train/0.png": b""},
        ("source.columns.label=COLUMN", "it has 'text'", NO_LABELS),
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_the_user_is_asked_with_what_to_say_for_each_reading(name: str, tmp_path: Path) -> None:
    files, readings = ASKED[name]
    write(tmp_path, files)
    with pytest.raises(UsageError, match=r"can be read in several ways|may be of several kinds") as caught:
        settled(asked(tmp_path))
    missing = [words for words in readings if words not in str(caught.value.remedy)]
    assert missing == [], caught.value.remedy


def test_settings_that_say_which_settle_it(tmp_path: Path) -> None:
    write(tmp_path, {"images/cat/1.jpg": b"", "labels/dog/2.jpg": b""})
    for settings in ({"layout": "classes"}, {"labels": "none"}):
        assert settled(asked(tmp_path, **settings)).config.source.kind == "image_folder"


def rows(source: Path, **settings: Any) -> dict[str, tuple[str | None, str | None, str | None]]:
    """URI -> label, split and reason."""
    request = settled(asked(source, **settings))
    table = list_inputs(open_source(request), request.config).table.to_pylist()
    return {row["uri"]: (row["label"], row["split"], row["reason"]) for row in table}


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("top", ["", "data/"])
def test_the_image_folder_of_hugging_face(form: str, top: str, tmp_path: Path) -> None:
    names = ["0.png", "sub/1.png"]
    table = {
        "csv": lambda: b"file_name,label\n0.png,{0}\nsub/1.png,b\n",
        "jsonl": lambda: (
            b'{"file_name": "0.png", "label": "{0}"}\n{"file_name": "sub/1.png", "label": "b"}\n'
        ),
        "parquet": lambda: parquet({"file_name": names, "label": ["{0}", "b"]}),
    }[form]()
    for split in ("train", "test"):
        data = table.replace(b"{0}", split[:1].encode() + b"-a") if form != "parquet" else table
        write(tmp_path, {f"{top}{split}/metadata.{form}": data})
        write(tmp_path, {f"{top}{split}/{name}": b"" for name in names} | {f"{top}{split}/other.png": b""})
    found = rows(tmp_path)
    for split in ("train", "test"):
        label = "{0}" if form == "parquet" else f"{split[:1]}-a"
        assert found[f"{top}{split}/0.png"] == (label, split, None)
        assert found[f"{top}{split}/sub/1.png"] == ("b", split, None)
        assert found[f"{top}{split}/other.png"] == (None, None, "not_in_table")
    table, columns = {"file": f"{top}*/metadata.{form}"}, {"image": "file_name"}
    assert rows(tmp_path, kind="table", table=table, columns=columns) == found


def test_a_table_of_hugging_face_above_the_splits(tmp_path: Path) -> None:
    write(tmp_path, {"metadata.csv": b"file_name,label\ntrain/0.png,a\nvalid/1.png,b\n"})
    write(tmp_path, {"train/0.png": b"", "valid/1.png": b"", "train/metadata.txt": b""})
    found = rows(tmp_path)
    assert found["train/0.png"] == ("a", "train", None)
    assert found["valid/1.png"] == ("b", "validation", None)
    settings = {"table": {"file": "metadata.csv"}, "columns": {"image": "file_name"}}
    by_classes = rows(tmp_path, layout="classes", kind="table", **settings)
    assert by_classes["train/0.png"] == ("a", None, None)


def test_paths_that_begin_in_the_folder_of_the_table(tmp_path: Path) -> None:
    """Without a folder that names a split, and where both readings fit."""
    write(tmp_path, {"in/labels.csv": b"path,label\n0.png,a\n1.png,b\n", "in/0.png": b"", "in/1.png": b""})
    settings: dict[str, Any] = {"file": "in/labels.csv"}
    assert rows(tmp_path, kind="table", table=settings)["in/0.png"] == ("a", None, None)
    write(tmp_path, {"0.png": b""})
    with pytest.raises(ConfigError, match="name files of the source and of in") as caught:
        rows(tmp_path, kind="table", table=settings)
    assert "source.table.prefix=." in str(caught.value.remedy)
    from_source = rows(tmp_path, kind="table", table=settings | {"prefix": "."})
    assert (from_source["0.png"], from_source["in/0.png"][2]) == (("a", None, None), "not_in_table")
    from_folder = rows(tmp_path, kind="table", table=settings | {"prefix": "{folder}"})
    assert (from_folder["in/0.png"], from_folder["0.png"][2]) == (("a", None, None), "not_in_table")


def test_annotations_in_the_folders_of_splits(tmp_path: Path) -> None:
    """As Roboflow writes them; images of two splits may have the same name."""
    for name, data in (("_annotations.coco.json", COCO), ("1.xml", VOC)):
        source = tmp_path / name
        for split in ("train", "valid"):
            write(source, {f"{split}/{name}": data, f"{split}/1.jpg": b""})
        found = rows(source)
        assert found["train/1.jpg"][1:] == ("train", None)
        assert found["valid/1.jpg"][1:] == ("validation", None)


def test_a_large_folder_shows_its_table(tmp_path: Path) -> None:
    write(tmp_path, {f"train/{number:04}.png": b"" for number in range(450)})
    write(tmp_path, {"train/metadata.csv": b"file_name,label\n0001.png,a\n"})
    assert settled(asked(tmp_path)).config.source.table.file == "train/metadata.csv"


@pytest.mark.parametrize(
    ("names", "is_refused"),
    [
        (["images/1.jpg", "masks/1.png"], True),
        (["train/images/1.jpg", "test/images/2.jpg"], True),
        (["photos/train/cat/1.jpg", "photos/test/dog/1.jpg"], True),
        (["train2017/1.jpg", "val2017/2.jpg"], True),
        (["images/1.jpg", "cat/1.png"], False),
        (["cats/1.jpg"], False),
        (["cats/old/1.jpg", "cats/new/1.jpg"], False),
    ],
)
def test_classes_that_are_all_named_like_other_folders_are_refused(
    names: list[str], is_refused: bool, tmp_path: Path
) -> None:
    write(tmp_path, dict.fromkeys(names, b""))
    if not is_refused:
        assert rows(tmp_path, kind="image_folder")
        return
    with pytest.raises(UsageError, match=r"the classes of .* would be") as caught:
        rows(tmp_path, kind="image_folder")
    layout = "splits" if names[0].startswith("train/") else "classes"
    assert f"source.layout={layout}" in str(caught.value.remedy)
    assert rows(tmp_path, kind="image_folder", layout=layout)


def test_a_single_class_with_the_name_of_a_folder_of_images_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"images/cat/1.jpg": b"", "images/dog/2.jpg": b""})
    with pytest.raises(UsageError, match=r"the classes of .* would be 'images'") as caught:
        rows(tmp_path, kind="image_folder")
    assert "/images as the source if 'cat', 'dog'" in str(caught.value.remedy)
    assert rows(tmp_path, kind="image_folder", layout="classes")["images/cat/1.jpg"][0] == "images"
    assert rows(tmp_path, kind="image_folder", labels="none")["images/cat/1.jpg"][0] is None


@pytest.mark.parametrize("pack", [make_zip, make_tar])
@pytest.mark.parametrize(
    "files",
    [
        {"images/1.jpg": b"x", "annotations/a.json": b"{}"},
        {"top/train_images/1.jpg": b"x", "top/test_images/2.jpg": b"x"},
        {"top/train.csv": b"image,label\n", "top/a/1.jpg": b"x", "top/b/2.jpg": b"x"},
        {"top/img/1.jpg": b"x", "top/img_masks/1.png": b"x"},
    ],
)
def test_data_sets_in_archives_are_to_be_unpacked(pack: Any, files: dict[str, bytes], tmp_path: Path) -> None:
    pack(tmp_path / f"a.{pack.__name__.removeprefix('make_')}", files)
    with pytest.raises(UsageError, match="several ways") as caught:
        settled(asked(tmp_path))
    remedy = str(caught.value.remedy)
    assert "unpack a." in remedy
    assert "source.archive.layout=folders" in remedy
    assert NO_LABELS in remedy


def test_folders_of_classes_in_archives_are_read(tmp_path: Path) -> None:
    make_zip(tmp_path / "a.zip", {"top/cat/1.jpg": b"x", "top/dog/2.jpg": b"x", "top/README.txt": b"x"})
    make_tar(tmp_path / "b.tar", {"cat/3.jpg": b"x", "dog/4.jpg": b"x"})
    assert settled(asked(tmp_path)).config.source.kind == "archive"
