"""Labels and splits of members: class folders, an archive a class, sidecars."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.sources import list_inputs
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.archive import import_settings
from shardmill.infra.errors import ConfigError, UsageError
from tests.samples.sources.archives import make_tar, make_zip
from tests.samples.sources.columns import with_columns

Rows = dict[str, tuple[str | None, str | None]]


def listed(source: Path, **settings: Any) -> Rows:
    """URI -> (reason or label, split)."""
    config = PrepareConfig.model_validate(
        {"source": {"kind": "archive", **settings, **with_columns("archive", settings.get("archive", {}))}}
    )
    table = list_inputs(SourceFolder(str(source)), config).table
    return {row["uri"]: (row["reason"] or row["label"], row["split"]) for row in table.to_pylist()}


def make(source: Path, archives: dict[str, list[str]]) -> Path:
    for name, members in archives.items():
        files = {member: member.encode() for member in members}
        (make_zip if name.endswith(".zip") else make_tar)(source / name, files)
    return source


@pytest.mark.parametrize(
    ("archives", "labels"),
    [
        ({"a.tar": ["cat/1.jpg", "dog/deep/2.jpg"]}, [("cat", None), ("dog", None)]),
        ({"a.zip": ["photos/cat/1.jpg", "photos/dog/2.jpg"]}, [("cat", None), ("dog", None)]),
        (
            {"a.zip": ["d/train/cat/1.jpg", "d/val/dog/2.jpg"]},
            [("cat", "train"), ("dog", "validation")],
        ),
        ({"a.tar": ["cat/1.jpg"], "b.tar": ["dog/1.jpg"]}, [("cat", None), ("dog", None)]),
        ({"cat.tar": ["1.jpg"], "dog.zip": ["2.jpg"]}, [("cat", None), ("dog", None)]),
        (
            {"train/cat.tar": ["1.jpg"], "val/cat.tar": ["2.jpg"]},
            [("cat", "train"), ("cat", "validation")],
        ),
        (
            {"set-train-0001.tar": ["cat/1.jpg"], "set_val_0001.tar": ["dog/1.jpg"]},
            [("cat", "train"), ("dog", "validation")],
        ),
        ({"test.tar": ["cat/1.jpg", "dog/1.jpg"]}, [("cat", None), ("dog", None)]),
    ],
)
def test_folders_and_names_of_archives(
    archives: dict[str, list[str]], labels: list[tuple[str, str | None]], tmp_path: Path
) -> None:
    assert list(listed(make(tmp_path, archives)).values()) == labels


@pytest.mark.parametrize(
    "names",
    [
        ["train-00000-of-00001.tar", "test-00000-of-00001.tar"],
        ["photos-train-1.tar", "photos_val.zip"],
        ["train.tar", "cat.tar"],
    ],
)
def test_names_of_splits_become_no_classes(names: list[str], tmp_path: Path) -> None:
    make(tmp_path, {name: [f"{row}.jpg"] for row, name in enumerate(names)})
    with pytest.raises(UsageError, match="names of splits, not of classes") as refusal:
        listed(tmp_path)
    assert "--set source.labels=none" in (refusal.value.remedy or "")
    asked = listed(tmp_path, archive={"layout": "archives"}, layout="classes")
    assert {label for label, _ in asked.values()} == {name.rpartition(".")[0] for name in names}


def test_images_without_labels_keep_the_splits_of_their_archives(tmp_path: Path) -> None:
    make(tmp_path, {"train-0.tar": ["1.jpg"], "val-0.tar": ["2.jpg"]})
    assert list(listed(tmp_path, labels="none").values()) == [(None, "train"), (None, "validation")]


def test_sidecars_without_a_class_are_refused_and_masks_are_no_images(tmp_path: Path) -> None:
    files = {"1.jpg": b"1", "1.seg.png": b"m", "1.json": b'{"label": null, "tags": ["a"]}'}
    make_tar(tmp_path / "train-0.tar", files)
    make_tar(tmp_path / "test-0.tar", {"2.jpg": b"2", "2.json": b'{"label": null, "tags": []}'})
    with pytest.raises(UsageError, match="no key 'label' of a") as refusal:
        listed(tmp_path)
    assert "--set source.labels=multi" in (refusal.value.remedy or "")
    assert listed(tmp_path, labels="none") == {
        "test-0.tar#2.jpg": (None, "test"), "test-0.tar#2.json": ("sidecar", None),
        "train-0.tar#1.jpg": (None, "train"), "train-0.tar#1.json": ("sidecar", None),
        "train-0.tar#1.seg.png": ("sidecar", None),
    }  # fmt: skip


def test_a_caption_is_no_class(tmp_path: Path) -> None:
    make_tar(tmp_path / "a.tar", {"1.jpg": b"1", "1.cls": b"cat", "1.txt": b"a caption"})
    columns = {"features": {"caption": {"column": "txt", "dtype": "text"}}}
    config = PrepareConfig.model_validate({"source": {"kind": "archive", "columns": columns}})
    [row] = list_inputs(SourceFolder(str(tmp_path)), config).to_read().to_pylist()
    assert (row["label"], row["feature:caption"]) == ("cat", "a caption")


def test_settings_overrule_what_is_recognised(tmp_path: Path) -> None:
    make(tmp_path, {"train.tar": ["x/cat/1.jpg", "x/dog/1.jpg"], "val.tar": ["x/cat/1.jpg"]})
    assert [split for _, split in listed(tmp_path).values()] == ["train", "train", "validation"]
    plain = listed(tmp_path, archive={"splits_by_name": False})
    assert [split for _, split in plain.values()] == [None, None, None]
    whole = listed(tmp_path, archive={"prefix": "", "splits_by_name": False})
    assert {label for label, _ in whole.values()} == {"x"}
    by_archive = listed(tmp_path, archive={"layout": "archives"}, layout="classes")
    assert {label for label, _ in by_archive.values()} == {"train", "val"}
    with pytest.raises(UsageError, match="no member lies in that folder"):
        listed(tmp_path, archive={"prefix": "y"})
    config = {"source": {"kind": "archive"}, "filter": {"classes": ["cot"]}}
    with pytest.raises(ConfigError, match="names 'cot'"):
        list_inputs(SourceFolder(str(tmp_path)), PrepareConfig.model_validate(config))


def test_webdataset(tmp_path: Path) -> None:
    shard = {
        "0001.jpg": b"1", "0001.cls": b"1\n", "0001.txt": b"a caption",
        "0002.png": b"2", "0002.json": json.dumps({"label": "hat", "width": 5}).encode(),
        "sub/0003.jpg": b"3", "sub/0003.cls": b"0", "sub/0003.json": b'{"label": "loses"}',
        "0004.jpg": b"4", "0005.seg.png": b"5", "0005.cls": b"0",
        "0006.jpg": b"6", "0006.json": b"[no json", "0007.cls": b"1",
    }  # fmt: skip
    make_tar(tmp_path / "shard-train-000000.tar", shard)
    make_tar(tmp_path / "shard-val-000000.tar.gz", {"9.jpg": b"9", "9.cls": b"1"}, "w:gz")
    found = listed(tmp_path, archive={"class_names": ["shirt", "shoe"]})
    train = {uri.partition("#")[2]: row for uri, row in found.items() if "train" in uri}
    assert {name: label for name, (label, _) in train.items()} == {
        "0001.jpg": "shoe", "0001.cls": "sidecar", "0001.txt": "sidecar",
        "0002.png": "hat", "0002.json": "sidecar", "sub/0003.jpg": "shirt", "sub/0003.cls": "sidecar",
        "sub/0003.json": "sidecar", "0004.jpg": "no_label", "0005.seg.png": "shirt", "0005.cls": "sidecar",
        "0006.jpg": "no_label", "0006.json": "sidecar", "0007.cls": "sidecar",
    }  # fmt: skip
    assert found["shard-val-000000.tar.gz#9.jpg"] == ("shoe", "validation")
    assert train["0001.jpg"] == ("shoe", "train")


def test_names_with_dots(tmp_path: Path) -> None:
    """WebDataset itself takes all that stands before the first dot for one sample."""
    files = {
        "22.05.png": b"5", "22.05.cls": b"5", "22.06.png": b"6", "22.06.cls": b"6", "22.07.png": b"7",
        "1.left.png": b"l", "1.right.png": b"r", "1.cls": b"one",
        "2.img.png": b"i", "2.label.cls": b"two",
        "3.png": b"3", "3.a.cls": b"a", "3.b.cls": b"b",
        "v1.2/4.x.png": b"4", "v1.2/4.x.json": b'{"label": "x"}',
    }  # fmt: skip
    make_tar(tmp_path / "a.tar", files)
    found = {uri.partition("#")[2]: label for uri, (label, _) in listed(tmp_path).items()}
    assert {name: label for name, label in found.items() if name.endswith("png")} == {
        "22.05.png": "5", "22.06.png": "6", "22.07.png": "no_label",
        "1.left.png": "one", "1.right.png": "one", "2.img.png": "two", "3.png": "contradicting_rows",
        "v1.2/4.x.png": "x",
    }  # fmt: skip


def test_numbers_in_json(tmp_path: Path) -> None:
    values = ["3", "3.0", '{"label": 3.0}', '{"label": "3"}', '"cat"', "true", '{"label": true}', "[3]", "{"]
    files = {f"{at}.{end}": text.encode() for at, text in enumerate(values) for end in ("png", "json")}
    make_tar(tmp_path / "a.tar", files)
    config = PrepareConfig.model_validate({"source": {"kind": "archive"}})
    listing = list_inputs(SourceFolder(str(tmp_path)), config)
    rows = [row for row in listing.table.to_pylist() if row["uri"].endswith("png")]
    assert [row["reason"] or row["label"] for row in rows] == ["3"] * 4 + ["cat"] + ["no_label"] * 4
    assert "1 sidecar with neither text nor JSON that can be read, such as a.tar#8.json" in listing.warnings


def test_archives_without_labels(tmp_path: Path) -> None:
    make(tmp_path, {"train.tar": ["1.jpg", "deep/2.jpg"], "val.tar": ["3.jpg"]})
    assert listed(tmp_path, labels="none") == {
        "train.tar#1.jpg": (None, "train"),
        "train.tar#deep/2.jpg": (None, "train"),
        "val.tar#3.jpg": (None, "validation"),
    }


def test_a_name_in_json_wins_over_the_number(tmp_path: Path) -> None:
    files = {
        "1.cls": b"1", "1.jpg": b"1", "1.json": b'{"label": 1, "label_name": "hat"}',
        "2.jpg": b"2", "2.json": b'{"label": 0}', "2.cls": b"0",
        "3.jpg": b"3", "3.json": b'{"label": 7, "label_name": "1"}',
    }  # fmt: skip
    make_tar(tmp_path / "a.tar", files)
    found = listed(tmp_path, archive={"name_key": "label_name", "class_names": ["cap", "coat"]})
    assert {name: found[f"a.tar#{name}"][0] for name in ("1.jpg", "2.jpg", "3.jpg")} == {
        "1.jpg": "hat", "2.jpg": "cap", "3.jpg": "1"
    }  # fmt: skip


def test_numbers_of_no_class_and_members_that_are_no_images(tmp_path: Path) -> None:
    files = {
        "1.jpg": b"1", "1.cls": b"0", "2.jpg": b"2", "2.cls": b"9", "3.jpg": b"3", "3.cls": b"-1",
        "4.cls": b"1", "5.jxl": b"5", "5.cls": b"1", "6.dng": b"6", "words": b"words",
    }  # fmt: skip
    make_tar(tmp_path / "a.tar", files)
    found = listed(tmp_path, archive={"class_names": ["cat", "dog"]})
    assert {uri.partition("#")[2]: label for uri, (label, _) in found.items()} == {
        "1.jpg": "cat", "1.cls": "sidecar", "2.jpg": "no_label", "2.cls": "sidecar", "3.jpg": "no_label",
        "3.cls": "sidecar", "4.cls": "sidecar", "5.jxl": "dog", "5.cls": "sidecar", "6.dng": "other_file",
        "words": "other_file",
    }  # fmt: skip


@pytest.mark.parametrize("labels", ["class", "multi"])
def test_labels_of_sidecars_are_dropped_merged_and_named_by_a_file(tmp_path: Path, labels: str) -> None:
    source = tmp_path / "source"
    files = {
        f"{number}.{end}": data
        for number in range(4)
        for end, data in (("jpg", b"x"), ("cls", b"%d" % number))
    }
    make_tar(source / "a.tar", files)
    (source / "names.txt").write_text("cat\nkitten\nskip\n")
    archive = {"classes_file": "names.txt", "drop_labels": "skip", "merge_labels": {"kitten": "cat"}}
    found = listed(source, labels=labels, archive=archive)
    images = {uri: label for uri, (label, _) in found.items() if uri.endswith("jpg")}
    assert list(images.values()) == ["cat", "cat", "dropped_label", "no_label"]


def test_settings_of_sidecars_need_sidecars(tmp_path: Path) -> None:
    make(tmp_path, {"a.tar": ["cat/1.jpg", "dog/2.jpg"]})
    with pytest.raises(ConfigError, match="drop_labels and merge_labels are for sidecars"):
        listed(tmp_path, archive={"drop_labels": ["cat"]})


@pytest.mark.parametrize(
    ("first", "settings"), [(True, {"archive": {"name_key": "label_name"}}), (False, {})]
)
def test_an_import_looks_at_the_beginning_of_an_archive_alone(
    first: bool, settings: dict[str, Any], tmp_path: Path
) -> None:
    others = {f"{number:03}.cls": b"1" for number in range(300)}
    named = {"0.json": json.dumps({"label": 1, "label_name": "cat"}).encode()}
    make_tar(tmp_path / "a.tar", named | others if first else others | named)
    assert import_settings(SourceFolder(str(tmp_path)), PrepareConfig()) == settings
