"""Datasets of other libraries become version 1 with the bytes of their images, and grow."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shardmill.beam_jobs.report import make_report
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.exports.export import export
from shardmill.infra.dataset.verify import verify
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import UsageError
from tests.samples.images.photos import jpeg, picture, png, rotated_jpeg, write
from tests.samples.preparing.imports import import_of, imported, records_by_split, stored_images
from tests.samples.preparing.prepared import run
from tests.samples.sources.archives import make_tar
from tests.samples.sources.rows import example
from tests.samples.sources.tfds_folders import (
    BOX,
    CLASSES,
    PLAIN,
    TEXT,
    class_label,
    dictionary,
    make_tfds,
    plain_records,
    sequence,
    shard_name,
    tensor,
)


def grey_png(seed: int) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(np.asarray(picture(seed))[..., 0]).save(sink, "PNG")
    return sink.getvalue()


def test_a_data_set_of_tfds_keeps_the_bytes_of_its_images(tmp_path: Path) -> None:
    source, root = tmp_path / "beans", tmp_path / "root"
    shards = {"train": [plain_records(7), plain_records(5, 10)], "test": [plain_records(3, 20)]}
    make_tfds(source, shards)
    result = imported(source, root)
    assert result["stored_from"] == {"planes": 0, "pixels": 0, "source": 15}
    version = Catalog(str(root)).open("d")
    assert stored_images(version) == {
        (split, CLASSES[row % 3], jpeg(first + row))
        for split, first, count in (("train", 0, 7), ("train", 10, 5), ("test", 20, 3))
        for row in range(count)
    }
    assert not verify(version).problems
    assert imported(source, root)["unchanged"]
    settings = import_of(source, root).config.model_dump(mode="json", exclude_defaults=True)
    assert run(source, root, **settings)["unchanged"], "prepare continues with the same settings"
    more = {**shards, "train": [*shards["train"], plain_records(4, 30)]}
    for old in source.glob("*tfrecord*"):
        old.unlink()
    make_tfds(source, more)
    grown = imported(source, root)
    assert (grown["version"], grown["num_encoded"], grown["num_records"]) == (2, 4, 19)
    (source / shard_name("train", 1, 3)).unlink()
    with_loss = imported(source, root, failure_budget=0.5)
    assert with_loss["quarantine"] == {"broken_row": 5}
    assert with_loss["num_records"] == 14
    shutil.rmtree(source)
    newest = Catalog(str(root)).open("d")
    assert "broken_row" in make_report(newest.storage, newest.manifest), "drawn without the source"


def test_images_that_cannot_be_copied_are_encoded_or_rows(tmp_path: Path) -> None:
    images = [*map(jpeg, range(8)), rotated_jpeg(20, 6), png(21), jpeg(22)[:-60], b"", grey_png(23)]
    records = [example(image=[data], label=[row % 3]) for row, data in enumerate(images)]
    make_tfds(tmp_path / "beans", {"train": [records]})
    result = imported(tmp_path / "beans", tmp_path / "root", failure_budget=0.5)
    assert result["stored_from"]["source"] == 8
    assert sum(result["stored_from"].values()) == 11
    assert result["quarantine"] == {"truncated": 1, "empty": 1}


def test_grey_images_stay_grey(tmp_path: Path) -> None:
    images = [grey_png(number) for number in range(6)]
    records = [example(image=[data], label=[row % 3]) for row, data in enumerate(images)]
    make_tfds(tmp_path / "digits", {"train": [records]})
    assert imported(tmp_path / "digits", tmp_path / "root")["stored_from"]["source"] == 6
    version = Catalog(str(tmp_path / "root")).open("d")
    stored = [record for records in records_by_split(version).values() for record in records]
    assert {record.channels for record in stored} == {1}
    assert {record.image for record in stored} == set(images)
    assert version.manifest.image_encoding == "png"


def test_features_of_tfds_are_those_of_the_records(tmp_path: Path) -> None:
    features = {**PLAIN, "caption": TEXT, "vector": tensor("float32", 2)}
    records = [
        example(
            image=[jpeg(row)], label=[row % 3], caption=[f"größe {row}".encode()], vector=[0.5, float(row)]
        )
        for row in range(4)
    ]
    make_tfds(tmp_path / "beans", {"train": [records]}, features)
    imported(tmp_path / "beans", tmp_path / "root")
    version = Catalog(str(tmp_path / "root")).open("d")
    found = version.scan(["caption", "vector"]).to_table().to_pylist()
    assert sorted((row["caption"], row["vector"]) for row in found) == [
        (f"größe {row}", [0.5, row]) for row in range(4)
    ]


def test_objects_of_tfds_follow_their_images(tmp_path: Path) -> None:
    """Boxes refer to the pixels in the file; the EXIF orientation of the second image turns them."""
    features = {
        "image": PLAIN["image"],
        "objects": sequence(dictionary({"bbox": BOX, "label": class_label()})),
    }
    box = [0.125, 0.25, 0.5, 0.75]
    records = [
        example(image=[data], **{"objects/bbox": boxes, "objects/label": labels})
        for data, boxes, labels in (
            (jpeg(1), box, [2]), (rotated_jpeg(2, 6), box, [0]),
            (jpeg(3), [], []), (jpeg(4), box + box, [1, 1]),
        )
    ]  # fmt: skip
    source = make_tfds(tmp_path / "beans", {"train": [records]}, features, names={"objects/label": CLASSES})
    result = imported(source, tmp_path / "root")
    assert result["stored_from"]["source"] == 3
    version = Catalog(str(tmp_path / "root")).open("d")
    assert verify(version).problems == []
    rows = version.index(version.manifest.shards[0]).to_pylist()
    found = {int(row["source_uri"][-1]): row for row in rows}
    assert [found[number]["objects/bbox"] for number in (0, 2, 3)] == [box, [], box + box]
    assert found[1]["objects/bbox"] == [0.25, 0.5, 0.75, 0.875]
    names = version.manifest.classes
    assert [[names[label] for label in found[number]["labels"]] for number in range(4)] == [
        ["coat"], ["hat"], [], ["cap"],
    ]  # fmt: skip
    export(version, str(tmp_path / "out"), "tfds")
    imported(tmp_path / "out", tmp_path / "again")
    assert labels_and_boxes(Catalog(str(tmp_path / "again")).open("d")) == labels_and_boxes(version)


def labels_and_boxes(version: DatasetVersion) -> list[tuple[list[str], list[float], list[str]]]:
    """The names of the labels of each record, and its boxes with their classes, sorted."""
    names = version.manifest.classes
    return sorted(
        (
            sorted(names[at] for at in row["labels"]),
            row.get("objects/bbox", []),
            [names[at] for at in row.get("objects/label", [])],
        )
        for shard in version.manifest.shards
        for row in version.index(shard).to_pylist()
    )


def wds_members(count: int, first: int = 0, ending: str = "jpg") -> dict[str, bytes]:
    members = {}
    for row in range(count):
        members[f"{first + row:04}.{ending}"] = jpeg(first + row)
        members[f"{first + row:04}.cls"] = str(row % 3).encode()
    return members


@pytest.mark.parametrize(("ending", "mode"), [("tar", "w"), ("tar.gz", "w:gz")])
def test_a_data_set_of_webdataset(tmp_path: Path, ending: str, mode: str) -> None:
    source, root = tmp_path / "shards", tmp_path / "root"
    make_tar(source / f"photos-train-000000.{ending}", wds_members(6), mode)
    make_tar(source / f"photos-train-000001.{ending}", wds_members(6, 10), mode)
    make_tar(source / f"photos-val-000000.{ending}", wds_members(2, 20), mode)
    names = {"columns": {"class_names": list(CLASSES)}}
    result = imported(source, root, source=names)
    assert result["stored_from"] == {"planes": 0, "pixels": 0, "source": 14}
    version = Catalog(str(root)).open("d")
    assert stored_images(version) == {
        (split, CLASSES[row % 3], jpeg(first + row))
        for split, first, count in (("train", 0, 6), ("train", 10, 6), ("validation", 20, 2))
        for row in range(count)
    }
    make_tar(source / f"photos-train-000002.{ending}", wds_members(3, 30), mode)
    assert imported(source, root, source=names)["num_encoded"] == 3
    cut = (source / f"photos-train-000001.{ending}").read_bytes()
    (source / f"photos-train-000001.{ending}").write_bytes(cut[: len(cut) // 2])
    damaged = imported(source, root, source=names, failure_budget=0.5)
    assert damaged["quarantine"]["broken_container"] == 1
    assert 8 < damaged["num_records"] < 17


@pytest.mark.parametrize(
    ("form", "encoding"),
    [
        ("tfds", "jpeg"),
        ("webdataset", "png"),
        ("tfds", "webp"),
        pytest.param("webdataset", "jpeg", marks=pytest.mark.slow),
        pytest.param("tfds", "png", marks=pytest.mark.slow),
        pytest.param("webdataset", "webp", marks=pytest.mark.slow),
    ],
)
def test_an_export_comes_back_as_it_was(tmp_path: Path, form: str, encoding: str) -> None:
    photos = {f"{split}/{name}/{row}.jpg": jpeg(100 * len(split) + 10 * len(name) + row)
              for split, count in (("train", 6), ("val", 2), ("test", 3))
              for name in ("red fox", "owl") for row in range(count)}  # fmt: skip
    write(tmp_path / "photos", photos)
    image = {"size": 32, "encoding": encoding}
    run(tmp_path / "photos", tmp_path / "first", image=image)
    before = Catalog(str(tmp_path / "first")).open("d")
    export(before, tmp_path / "out", form)
    result = imported(tmp_path / "out", tmp_path / "second")
    after = Catalog(str(tmp_path / "second")).open("d")
    assert result["stored_from"]["source"] == result["num_records"] == before.manifest.accounting.num_records
    assert stored_images(after) == stored_images(before)
    assert after.manifest.classes == before.manifest.classes
    assert after.manifest.image_encoding == encoding


def test_an_export_of_folders_is_prepared_as_the_page_says(tmp_path: Path) -> None:
    files = {f"{split}/{name}/{row}.jpg": jpeg(100 * len(split) + 10 * len(name) + row)
             for split in ("train", "test") for name in ("red fox", "owl") for row in range(4)}  # fmt: skip
    write(tmp_path / "photos", files)
    run(tmp_path / "photos", tmp_path / "first", image={"size": 32})
    before = Catalog(str(tmp_path / "first")).open("d")
    export(before, tmp_path / "out", "folder")
    ignore = {"ignore": ["index", "*.json", "*.sha256"]}  # as docs/export.md says
    kept = {"resize": "none", "passthrough": True}
    result = run(tmp_path / "out", tmp_path / "second", image=kept, filter=ignore)
    assert (result["num_quarantined"], result["stored_from"]["source"]) == (0, 16)
    assert stored_images(Catalog(str(tmp_path / "second")).open("d")) == stored_images(before)


def test_what_cannot_be_taken_over(tmp_path: Path) -> None:
    write(tmp_path / "photos", {"cat/1.jpg": jpeg(1), "dog/2.jpg": jpeg(2)})
    with pytest.raises(UsageError, match="of the kind image_folder, which cannot be taken over"):
        import_of(tmp_path / "photos", tmp_path / "root")
    make_tfds(tmp_path / "beans/0.1.0", {"train": [plain_records(1)]})
    with pytest.raises(UsageError, match=r"folders below: 0\.1\.0"):
        import_of(tmp_path / "beans", tmp_path / "root")


@pytest.mark.parametrize(
    ("images", "encoding", "channels"),
    [
        ([jpeg(0), jpeg(1), png(2)], "jpeg", 3), ([png(0), png(1), jpeg(2)], "png", 3),
        ([grey_png(0), grey_png(1)], "png", 1), ([grey_png(0), png(1)], "png", 3), ([b"?"], "png", 3),
    ],
)  # fmt: skip
def test_the_stored_form_is_that_of_most_images(
    images: Any, encoding: str, channels: int, tmp_path: Path
) -> None:
    records = [example(image=[data], label=[row % 3]) for row, data in enumerate(images)]
    make_tfds(tmp_path, {"train": [records]})
    config = import_of(tmp_path, tmp_path / "root").config
    assert (config.image.encoding, config.image.channels) == (encoding, channels)
    asked = import_of(tmp_path, tmp_path / "root", image={"encoding": "webp"}).config
    assert asked.image.encoding == "webp"


def test_settings_of_an_import_are_the_same_each_time(tmp_path: Path) -> None:
    make_tfds(tmp_path, {"train": [plain_records(3)]})
    one, other = (import_of(tmp_path, tmp_path / "root").config.effective() for _ in range(2))
    assert json.dumps(one) == json.dumps(other)
    assert Counter(one["image"])["passthrough"]
