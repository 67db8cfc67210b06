"""Recognise the kind of a source; sources that are files or patterns."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.config.known_kinds import described_kinds
from shardmill.beam_jobs.dry_run import dry_run
from shardmill.beam_jobs.sources import list_inputs, open_source
from shardmill.beam_jobs.sources.recognition.recognising import folder_and_files, settled
from shardmill.infra.errors import NotFoundError, UsageError
from tests.samples.images.dicoms import dicom, slice_of
from tests.samples.images.photos import jpeg, write
from tests.samples.sources.archives import make_tar, make_zip, pictures
from tests.samples.sources.requests import asked, parquet
from tests.samples.sources.tfds_folders import make_tfds, plain_records

IMAGES = {"cat/1.jpg": jpeg(1), "dog/2.jpg": jpeg(2)}


def _npz() -> bytes:
    sink = io.BytesIO()
    np.savez(sink, x=np.zeros((2, 4, 4), np.uint8), y=np.arange(2))
    return sink.getvalue()


COCO = b'{"images": [{"id": 1, "file_name": "t.jpg"}], "annotations": []}'

SOURCES: dict[str, tuple[Callable[[Path], object], str]] = {
    "folders": (lambda path: write(path, IMAGES), "image_folder"),
    "folders of splits": (
        lambda path: write(path, {f"train/{name}": b"" for name in IMAGES}),
        "image_folder",
    ),
    "DICOM without endings": (
        lambda path: write(path, {"lung/IM1": dicom(slice_of(0, 0)), "liver/1.2.840": dicom(slice_of(1, 0))}),
        "image_folder",
    ),
    "tar": (lambda path: make_tar(path / "a.tar", IMAGES), "archive"),
    "zips below": (lambda path: make_zip(path / "deep/er/a.zip", IMAGES), "archive"),
    "table": (
        lambda path: write(path, {"l.csv": b"Image;Label\n1.jpg;cat\n", "img/1.jpg": b"", "2.jpg": b""}),
        "table",
    ),
    "table of bare names in a folder": (
        lambda path: write(path, {"l.csv": b"image,label\n1,cat\n2,dog\n", "p/1.jpg": b"", "p/2.png": b""}),
        "table",
    ),
    "table of paths in a folder": (
        lambda path: write(path, {"l.csv": b"path,label\nimages/1.jpg,cat\n", "images/1.jpg": b""}),
        "table",
    ),
    "table beside folders of classes": (
        lambda path: write(path, {"l.csv": b"path,label\ncat/1.jpg,a\ndog/2.jpg,b\n", **IMAGES}),
        "table or image_folder",
    ),
    "table that repeats folders of classes": (
        lambda path: write(path, {"l.csv": b"path,label\ncat/1.jpg,cat\ndog/2.jpg,dog\n", **IMAGES}),
        "image_folder",
    ),
    "table of other images": (
        lambda path: write(path, {"l.csv": b"path,label\n7.jpg,cat\n", **IMAGES}),
        "table or image_folder",
    ),
    "table beside flat images": (
        lambda path: write(path, {"l.csv": b"image,label\n1.jpg,cat\n", "1.jpg": b"", "README.md": b""}),
        "table",
    ),
    "JSON lines": (
        lambda path: write(path, {"l.jsonl": b'{"file": "1.jpg", "class": 3}\n', "1.jpg": b""}),
        "table",
    ),
    "addresses": (lambda path: write(path, {"l.tsv": b"url\tlabel\nhttp://a/1.jpg\tcat\n"}), "urls"),
    "rows of images": (
        lambda path: write(path, {"0.parquet": parquet({"image": [b"1"], "label": [0]})}),
        "parquet",
    ),
    "a Parquet table": (
        lambda path: write(path, {"l.parquet": parquet({"path": ["1.jpg"], "label": ["a"]}), "1.jpg": b""}),
        "table",
    ),
    "TFDS": (lambda path: make_tfds(path, {"train": [plain_records(1)]}), "tfds"),
    "COCO": (
        lambda path: write(
            path,
            {
                "a.json": b'{"info": {}, "images": [{"id": 1, "file_name": "1.jpg"}]}',
                "b.json": b'{"title": "no annotations"}',
                "images/1.jpg": b"",
            },
        ),
        "coco",
    ),
    "COCO, a year": (
        lambda path: write(
            path,
            {f"annotations/instances_{split}2017.json": COCO for split in ("train", "val")}
            | {f"{split}2017/{split[0]}.jpg": b"" for split in ("train", "val", "test")},
        ),
        "coco",
    ),
    "COCO, paths below the source": (
        lambda path: write(
            path,
            {
                "annotations.json": COCO.replace(b"t.jpg", b"train/t.jpg"),
                "train/t.jpg": b"",
                "val/2.jpg": b"",
            },
        ),
        "coco",
    ),
    "COCO beside classes": (
        lambda path: write(path, {"a.json": COCO, "train/cat/t.jpg": b"", "train/dog/2.jpg": b""}),
        "coco or image_folder",
    ),
    "VOC of 2012": (
        lambda path: write(
            path,
            {
                "Annotations/1.xml": b"<annotation><filename>1.jpg</filename></annotation>",
                "ImageSets/Main/train.txt": b"1\n",
                "JPEGImages/1.jpg": b"",
                "SegmentationClass/1.png": b"",
                "SegmentationObject/1.png": b"",
            },
        ),
        "voc",
    ),
    "VOC": (
        lambda path: write(
            path,
            {
                "labels/1.xml": b'<?xml version="1.0"?>\n<annotation><filename>1.jpg</filename></annotation>',
                "labels/2.xml": b"<page/>",
                "1.jpg": b"",
            },
        ),
        "voc",
    ),
    "arrays": (lambda path: write(path, {"mnist.npz": _npz()}), "arrays"),
    "IDX": (lambda path: write(path, {"train-images-idx3-ubyte.gz": gzip.compress(b"")}), "arrays"),
    "TFRecords": (lambda path: write(path, {"train.tfrecord-00000-of-00001": b""}), "tfrecord"),
    "ArrayRecords": (lambda path: write(path, {"a.array_record-00000-of-00001": b""}), "array_record"),
    "nothing": (lambda path: write(path, {"notes.txt": b"", "film.mp3": b""}), "none"),
    "folders and archives": (lambda path: make_tar(write(path, IMAGES) / "a.tar", IMAGES), "several"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_what_is_recognised(name: str, tmp_path: Path) -> None:
    make, kind = SOURCES[name]
    make(tmp_path)
    if kind == "none":
        with pytest.raises(UsageError, match=r"no kind .* is recognised in .*: it has 1 \.mp3, 1 \.txt"):
            settled(asked(tmp_path))
    elif kind == "several" or " or " in kind:
        with pytest.raises(UsageError, match="may be of several kinds: ") as error:
            settled(asked(tmp_path))
        assert "--source-kind image_folder" in str(error.value.remedy)
    else:
        source = settled(asked(tmp_path)).config.source
        assert source.kind == kind
        if kind in ("table", "urls"):
            assert source.table.file is not None
            assert source.table.file.startswith("l.")


def test_given_settings_win_over_found_ones(tmp_path: Path) -> None:
    write(tmp_path, {"l.csv": b"id,image,label,breed\n7,1.jpg,cat,x\n", "1.jpg": b""})
    found = settled(asked(tmp_path)).config.source
    assert (found.table.file, found.columns.image, found.columns.label) == ("l.csv", "image", "label")
    given = settled(asked(tmp_path, columns={"label": "breed", "drop_labels": ["y"]})).config.source.columns
    assert (given.image, given.label, given.drop_labels) == ("image", "breed", ("y",))
    # As a flow hands it over: with all defaults written out.
    whole = PrepareConfig.model_validate(asked(tmp_path).config.model_dump())
    request = asked(tmp_path).model_copy(update={"config": whole})
    assert settled(request).config.source.table.file == "l.csv"


TABLES: dict[str, tuple[dict[str, bytes], dict[str, Any], dict[str, Any]]] = {
    "the folder of the images": (
        {"l.csv": b"image,label\n7,cat\n", "images/7.jpg": b"", "images/8.jpg": b""},
        {},
        {"image": "image", "label": "label", "prefix": "images"},
    ),
    "JSON lines": (
        {"l.jsonl": b'{"file": "7.jpg", "class": "a"}\n', "deep/er/7.jpg": b""},
        {},
        {"image": "file", "label": "class", "prefix": "deep/er"},
    ),
    "Parquet": (
        {"l.parquet": parquet({"path": ["7.jpg"], "label": ["a"]}), "p/7.jpg": b""},
        {},
        {"prefix": "p"},
    ),
    "captions": (
        {"l.csv": b"image,caption\n7.jpg,a cat\n", "images/7.jpg": b""},
        {"labels": "none", "columns": {"features": ["caption"]}},
        {"image": "image", "prefix": "images"},
    ),
    "numbers": (
        {"l.parquet": parquet({"id": ["7"], "price": [1.5]}), "images/7.jpg": b""},
        {"columns": {"target_columns": ["price"]}},
        {"image": "id", "prefix": "images"},
    ),
    "columns of 0 and 1": (
        {"l.jsonl": b'{"image": "7", "cat": true, "dog": false}\n', "images/7.jpg": b""},
        {"columns": {"label_columns": ["cat", "dog"]}},
        {"image": "image"},
    ),
    "lists of labels": (
        {"l.jsonl": b'{"image": "7", "label": ["cat", "dog"]}\n', "images/7.jpg": b""},
        {"labels": "multi"},
        {"image": "image", "label": "label"},
    ),
    "masks": (
        {"l.csv": b"image,mask\nimages/7.jpg,masks/7.png\n", "images/7.jpg": b"", "masks/7.png": b""},
        {"columns": {"mask": "mask"}, "masks": {"classes": ["road"]}},
        {"image": "image", "prefix": ""},
    ),
    "one of several tables": (
        {"l.csv": b"image,label\n7,cat\n", "old.csv": b"image,label\n7,dog\n", "7.jpg": b""},
        {"table": {"file": "l.csv"}},
        {"image": "image"},
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_every_kind_of_labels_are_recognised(name: str, tmp_path: Path) -> None:
    files, given, settings = TABLES[name]
    write(tmp_path, files)
    source = settled(asked(tmp_path, **given)).config.source
    found = source.table.model_dump() | source.columns.model_dump()
    assert (source.kind, found["file"]) == ("table", next(iter(files)))
    assert {key: found[key] for key in settings} == settings


def test_addresses_without_labels_are_recognised(tmp_path: Path) -> None:
    write(tmp_path, {"l.csv": b"url,caption\nhttp://a/1.jpg,a cat\n"})
    source = settled(asked(tmp_path, labels="none")).config.source
    assert (source.kind, source.columns.image) == ("urls", "url")


def test_a_table_without_the_columns_that_are_asked_for_is_none(tmp_path: Path) -> None:
    write(tmp_path, {"l.csv": b"image,label\n7.jpg,cat\n", "images/7.jpg": b""})
    with pytest.raises(UsageError, match="no kind of source is recognised"):
        settled(asked(tmp_path, columns={"target_columns": ["price"]}))


def test_images_that_a_glance_does_not_show_give_the_folder_of_a_table(tmp_path: Path) -> None:
    write(tmp_path, {"l.csv": b"image,label\nzz,cat\n", "photos/zz.jpg": b"x"})
    write(tmp_path, {f"photos/{number:03}.jpg": b"" for number in range(450)})
    assert settled(asked(tmp_path)).config.source.table.prefix == "photos"


def test_sources_that_are_files_or_patterns(tmp_path: Path) -> None:
    files = pictures({"cat": 1, "dog": 1})
    for name in ("train-1.tar", "train-2.tar", "val-1.tar", "deep/train-3.tar"):
        make_tar(tmp_path / name, files)
    write(tmp_path, {"other.jpg": b"x"})
    for source, archives in {
        "val-1.tar": ["val-1.tar"],
        "train-*.tar": ["train-1.tar", "train-2.tar"],
        "*/train-?.tar": ["deep/train-3.tar"],
    }.items():
        request = settled(asked(tmp_path / source))
        assert request.config.source.kind == "archive"
        assert request.source == str(tmp_path)
        table = list_inputs(open_source(request), request.config).table
        assert sorted(set(table["container"].to_pylist())) == archives
    with pytest.raises(NotFoundError, match=r"no file in .* matches 'x\*\.tar'"):
        settled(asked(tmp_path / "x*.tar"))
    with pytest.raises(NotFoundError, match="is not there"):
        settled(asked(tmp_path / "gone"))
    assert folder_and_files("relative-*.tar") == (".", "relative-*.tar")
    assert folder_and_files("/*.tar") == ("/", "*.tar")
    assert folder_and_files("s3://bucket/a/*/b-*.tar?region=x") == ("s3://bucket/a?region=x", "*/b-*.tar")


def test_a_folder_in_place_of_a_kind_is_as_before(tmp_path: Path) -> None:
    request = asked(tmp_path, kind="image_folder")
    assert settled(request) is request


def test_a_dry_run_says_what_was_recognised(tmp_path: Path) -> None:
    make_tar(tmp_path / "a.tar", pictures({"cat": 2, "dog": 2}))
    request = asked(tmp_path / "a.tar").model_copy(update={"root": str(tmp_path / "root")})
    outcome = dry_run(request)
    assert outcome["source_kind"] == "archive"
    assert outcome["first_inputs"][0]["uri"] == "a.tar#cat/0.jpg"


def test_every_kind_is_described() -> None:
    kinds = {kind["kind"]: kind for kind in described_kinds()}
    assert {"image_folder", "table", "archive", "parquet", "arrays", "tfrecord", "urls"} <= set(kinds)
    for kind in kinds.values():
        assert kind["description"].endswith((".", ":"))
        assert all(option["description"] for option in kind["options"])
    options = [option["option"] for option in kinds["archive"]["options"]]
    assert {"source.files", "source.archive.layout", "source.labels", "source.label_edits"} <= set(options)
    of_masks = {option["option"] for option in kinds["masks"]["options"]}
    assert {"source.files", "source.masks.classes", "source.masks.mask_suffix"} <= of_masks
    assert not {"source.labels", "source.label_edits"} & of_masks, "its labels are masks"
    of_tfds = {option["option"] for option in kinds["tfds"]["options"]}
    assert {"source.tfds.splits", "source.columns.label"} <= of_tfds
    assert "source.columns.target_columns" not in of_tfds, "refused"
    of_boxes = {option["option"] for option in kinds["box_table"]["options"]}
    assert {"source.table.delimiter", "source.objects.table.units"} <= of_boxes
    assert not {"source.table.file", "source.table.prefix"} & of_boxes, "refused"
