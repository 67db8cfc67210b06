"""Directories of TensorFlow Datasets: labels, splits, features, and metadata that are wrong or incomplete."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import file_refs
from shardmill.beam_jobs.sources import list_inputs, open_reader
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.tfds.metadata import leaves_of
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.tables.features import features_of
from shardmill.infra.errors import ConfigError, NotFoundError
from tests.samples.images.photos import jpeg, png, write
from tests.samples.sources.rows import example, outcomes
from tests.samples.sources.tfds_folders import (
    BOX,
    CLASSES,
    PLAIN,
    TEXT,
    class_label,
    dictionary,
    image,
    make_tfds,
    plain_records,
    sequence,
    shard_name,
    tensor,
)


def config_of(**source: Any) -> PrepareConfig:
    return PrepareConfig.model_validate({"source": {"kind": "tfds", **source}})


def listed(folder: Path, **source: Any) -> Listing:
    listing = list_inputs(SourceFolder(str(folder)), config_of(**source))
    uris = listing.table["uri"].to_pylist()
    assert uris == sorted(set(uris)), "sorted and unique"
    return listing


def rows_of(listing: Listing) -> dict[str, tuple[Any, ...]]:
    """The records alone: URI -> (label, split, reason)."""
    return {uri: row for uri, row in outcomes(listing).items() if "#" in uri}


def uri(split: str, row: int, number: int = 0, count: int = 1) -> str:
    return f"{shard_name(split, number, count)}#row={row:07}"


def test_labels_splits_and_images(tmp_path: Path) -> None:
    shards = {"train": [plain_records(2), plain_records(3, 10)], "test": [plain_records(1, 20)]}
    folder = make_tfds(tmp_path, shards)
    listing = listed(folder)
    assert rows_of(listing) == {
        uri("test", 0): ("hat", "test", None),
        uri("train", 0, 0, 2): ("hat", "train", None),
        uri("train", 1, 0, 2): ("cap", "train", None),
        uri("train", 0, 1, 2): ("hat", "train", None),
        uri("train", 1, 1, 2): ("cap", "train", None),
        uri("train", 2, 1, 2): ("coat", "train", None),
    }
    assert {reason for _, _, reason in outcomes(listing).values()} == {"ignored", "row_file", None}
    reader = open_reader(SourceFolder(str(folder)), config_of())
    images = {file.uri: reader.read(file) for file in file_refs(listing.to_read())}
    assert images[uri("train", 2, 1, 2)] == jpeg(12)
    assert images[uri("test", 0)] == jpeg(20)


def test_features_are_typed(tmp_path: Path) -> None:
    features = {
        **PLAIN, "id": tensor("int64"), "image/filename": TEXT, "flag": tensor("bool"),
        "score": tensor("float32"), "vector": tensor("float32", 2), "tags": sequence(TEXT),
        "other": class_label(), "box": BOX, "boxes": sequence(dictionary({"bbox": BOX})),
        "width": tensor("int64"), "place": dictionary({"x": TEXT}),
        "mask": image(1), "large": tensor("int64", 100, 100), "lists": sequence(sequence(TEXT)),
        "zipped": {"pythonClassName": "a.Tensor", "tensor": {"dtype": "int64", "encoding": "zlib"}},
        "film": {"pythonClassName": "a.video_feature.Video", "video": {}}, "source_id": TEXT,
    }  # fmt: skip
    values: dict[str, Any] = {
        "id": [7], "image/filename": [b"7.jpg"], "flag": [1], "score": [0.5], "vector": [1.0, 2.0],
        "tags": [b"a", "ü".encode()], "other": [2], "box": [0.0, 0.25, 0.5, 1.0], "boxes/bbox": [0.5] * 8,
        "width": [64], "place/x": [b"here"], "mask": [png(1)], "source_id": [b"taken"],
    }  # fmt: skip
    records = [
        example(image=[jpeg(0)], label=[0], **values),
        example(image=[jpeg(1)], label=[1], **{**values, "tags": [], "vector": []}),
        example(image=[jpeg(2)], label=[1], **{**values, "vector": [1.0]}),
        example(image=[jpeg(3)], label=[1], **{**values, "score": [3]}),
        example(image=[jpeg(4)], label=[1], **{**values, "place/x": [b"\xff"]}),
    ]
    listing = listed(make_tfds(tmp_path, {"train": [records]}, features))
    table = listing.table.filter([value is not None for value in listing.table["position"].to_pylist()])
    assert {feature.name: (str(feature), feature.column) for feature in features_of(table)} == {
        "source_id": ("int64", "id"), "image_filename": ("text", "image/filename"), "flag": ("int64", "flag"),
        "score": ("float32", "score"), "vector": ("float32 [2]", "vector"),
        "tags": ("text [any number]", "tags"), "other": ("int64", "other"), "box": ("float32 [4]", "box"),
        "boxes_bbox": ("float32 [any number]", "boxes/bbox"), "place_x": ("text", "place/x"),
    }  # fmt: skip
    first, second, *broken = table.to_pylist()
    assert first["feature:vector"] == [1.0, 2.0]
    assert first["feature:tags"] == ["a", "ü"]
    assert first["feature:boxes_bbox"] == [0.5] * 8
    assert (second["feature:tags"], second["feature:vector"]) == ([], None)
    assert [row["reason"] for row in broken] == ["broken_row"] * 3
    assert [row["message"] for row in broken] == [
        "its feature 'vector' has 1 values, not 2",
        "its feature 'score' does not hold float32, as features.json says",
        "its feature 'place/x' is no text: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",  # noqa: E501
    ]
    said = [warning for warning in listing.warnings if "left out" in warning]
    assert [warning.partition(" is ")[0] for warning in said] == [
        f"the feature {name!r}" for name in ("film", "large", "lists", "mask", "source_id", "zipped")
    ]
    few = listed(tmp_path, columns={"features": ["tags"]})
    assert [feature.name for feature in features_of(few.table)] == ["tags"]
    twice = listed(tmp_path, columns={"features": {"one": "tags", "two": "tags"}}).table.to_pylist()
    assert ["a", "ü"] in [row["feature:one"] for row in twice]
    assert [row["feature:one"] for row in twice] == [row["feature:two"] for row in twice]


@pytest.mark.parametrize("cut", [1, 700, -1])
def test_every_counted_record_of_a_cut_shard_is_an_input(tmp_path: Path, cut: int) -> None:
    folder = make_tfds(tmp_path, {"train": [plain_records(6), plain_records(2, 50)]})
    path = folder / shard_name("train", 0, 2)
    path.write_bytes(path.read_bytes()[:cut])
    found = list(rows_of(listed(folder)).values())
    assert len(found) == 8
    kept = sum(reason is None for _, _, reason in found)
    assert kept == {1: 2, 700: 2, -1: 7}[cut]
    assert {reason for _, _, reason in found} == {None, "broken_row"}


def test_a_missing_shard_and_one_cut_between_records(tmp_path: Path) -> None:
    shards = [plain_records(3), plain_records(4, 50), plain_records(2, 90)]
    folder = make_tfds(tmp_path, {"train": shards})
    (folder / shard_name("train", 1, 3)).unlink()
    last = folder / shard_name("train", 2, 3)
    last.write_bytes(last.read_bytes()[: len(last.read_bytes()) // 2])
    listing = listed(folder)
    reasons = [reason for _, _, reason in rows_of(listing).values()]
    assert len(reasons) == 9
    assert reasons.count("broken_row") >= 5
    assert f"{shard_name('train', 1, 3)} is missing, and with it 4 records" in listing.warnings
    messages = [text for text in listing.table["message"].to_pylist() if text and "counts" in text]
    assert any(text.startswith("dataset_info.json counts 4 records, and 4 are lost") for text in messages)


def test_counts_that_are_wrong(tmp_path: Path) -> None:
    records = plain_records(3)
    few = {"splits": [{"name": "train", "shardLengths": ["2"]}]}
    listing = listed(make_tfds(tmp_path / "few", {"train": [records]}, info=few))
    assert len(rows_of(listing)) == 3
    assert any("1 records more than dataset_info.json counts" in warning for warning in listing.warnings)
    lies = {"splits": [{"name": "train", "shardLengths": ["900000000000"]}]}
    found = rows_of(listed(make_tfds(tmp_path / "lies", {"train": [records]}, info=lies)))
    assert [reason for _, _, reason in found.values()] == [None, None, None, "broken_container"]


def test_labels_without_a_class(tmp_path: Path) -> None:
    records = [example(image=[jpeg(row)], label=[label]) for row, label in enumerate([0, -1, 3])]
    records += [example(image=[jpeg(8)], label=[b"hat"]), example(image=[jpeg(9)])]
    found = rows_of(listed(make_tfds(tmp_path, {"train": [records]})))
    assert list(found.values()) == [
        ("hat", "train", None), (None, "train", "no_label"), (None, "train", "no_label"),
        (None, "train", "broken_row"), (None, "train", "no_label"),
    ]  # fmt: skip


def test_classes_without_names_and_names_in_the_settings(tmp_path: Path) -> None:
    folder = make_tfds(tmp_path, {"train": [plain_records(3)]}, names={})
    assert [label for label, _, _ in rows_of(listed(folder)).values()] == ["0", "1", "2"]
    named = listed(folder, columns={"class_names": ["a", "b", "c"], "drop_labels": ["b"]})
    assert list(rows_of(named).values()) == [
        ("a", "train", None), ("b", "train", "dropped_label"), ("c", "train", None)
    ]  # fmt: skip


def test_names_that_are_numbers_are_names(tmp_path: Path) -> None:
    folder = make_tfds(tmp_path, {"train": [plain_records(3)]}, names={"label": ["2", "0", "1"]})
    assert [label for label, _, _ in rows_of(listed(folder)).values()] == ["2", "0", "1"]


def test_splits_of_other_names(tmp_path: Path) -> None:
    folder = make_tfds(tmp_path, {"train": [plain_records(1)], "extra": [plain_records(2, 9)]})
    with pytest.raises(ConfigError, match="split 'extra', which is neither train"):
        listed(folder)
    with pytest.raises(ConfigError, match=r"names 'more', and beans 0\.1\.0 has train, extra"):
        listed(folder, tfds={"splits": {"more": "none"}})
    found = rows_of(listed(folder, tfds={"splits": {"extra": "chosen"}}))
    assert [split for _, split, _ in found.values()] == [None, None, "train"]
    left_out = outcomes(listed(folder, tfds={"splits": {"extra": "none"}}))
    assert next(iter(left_out.items())) == (shard_name("extra"), (None, None, "row_file"))
    assert len([uri for uri in left_out if "#" in uri]) == 1
    chosen = rows_of(listed(folder, rows={"splits_from_names": False}))
    assert {split for _, split, _ in chosen.values()} == {None}


def test_several_labels_and_none(tmp_path: Path) -> None:
    lists: list[Any] = [[2, 0, 2], [], [1]]
    records = [example(image=[jpeg(row)], labels=numbers) for row, numbers in enumerate(lists)]
    features = {"image": image(), "labels": sequence(class_label())}
    folder = make_tfds(tmp_path / "multi", {"train": [records]}, features, names={"labels": CLASSES})
    with pytest.raises(ConfigError, match=r"has several labels an image, and source\.labels = 'class'"):
        listed(folder)
    table = listed(folder, labels="multi").to_read()
    assert table["feature:labels"].to_pylist() == [["coat", "hat"], [], ["cap"]]
    unlabelled = make_tfds(
        tmp_path / "none",
        {"train": [[example(image=[jpeg(0)], caption=[b"a hat"])]]},
        {"image": image(), "caption": TEXT},
    )
    assert list(rows_of(listed(unlabelled, labels="none")).values()) == [(None, "train", None)]
    assert list(rows_of(listed(folder, labels="none")).values()) == [(None, "train", None)] * 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"splits": "train"}, "it has no list of splits"),
        ({"splits": [{"name": "train", "shardLengths": ["x"]}]}, "are no numbers"),
        ({"splits": [{"name": "train", "shardLengths": [float("inf")]}]}, "are no numbers"),
        ({"splits": [{"name": "train", "shardLengths": [-1]}]}, "are no numbers of records"),
        ({"splits": [{"name": "train", "numBytes": "9"}]}, "the split train has no shardLengths"),
        ({"splits": [{"name": "a"}, {"name": "a"}]}, "no names of their own"),
        ({"splits": [{"name": "../../train", "shardLengths": [1]}]}, "no name of a file here"),
        (
            {"splits": [{"name": "train", "filepathTemplate": "x", "shardLengths": [1, 1]}]},
            "two shards have the same name",
        ),
        ({"fileFormat": "riegeli"}, "the files of beans 0.1.0 are riegeli"),
    ],
)
def test_wrong_metadata_are_refused_in_words(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    folder = make_tfds(tmp_path, {"train": [plain_records(1)]}, info=wrong)
    with pytest.raises(ConfigError, match=message):
        listed(folder)


@pytest.mark.parametrize(
    ("features", "source", "message"),
    [
        ({"label": class_label()}, {}, "no feature that could hold images"),
        ({"image": image(dtype="float32")}, {}, "are float32, whose bytes are stored as colours"),
        (
            {"left": image(), "right": image(), "label": class_label()},
            {},
            "several features .*images: left, right",
        ),
        ({"image": image(), "a": class_label(), "b": class_label()}, {}, "several class labels: a, b"),
        (PLAIN, {"columns": {"label": "kind"}}, "source.columns.label = 'kind' is no class label"),
        (PLAIN, {"columns": {"image": "label"}}, "'label' of the dataset cannot hold images"),
        (PLAIN, {"columns": {"group": "who"}}, "no feature 'who' for the group"),
        (PLAIN, {"columns": {"features": ["who"]}}, "no feature 'who' for the features"),
    ],
)
def test_features_that_do_not_fit(
    tmp_path: Path, features: dict[str, Any], source: dict[str, Any], message: str
) -> None:
    folder = make_tfds(tmp_path, {"train": [plain_records(1)]}, features)
    with pytest.raises(ConfigError, match=message):
        listed(folder, **source)


def test_files_that_are_no_metadata(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"has no dataset_info\.json"):
        listed(write(tmp_path / "empty", {"a.txt": b""}))
    folder = make_tfds(tmp_path / "beans", {"train": [plain_records(1)]})
    old = {"type": "tensorflow_datasets.core.features.features_dict.FeaturesDict", "content": "{}"}
    write(folder, {"features.json": json.dumps(old).encode()})
    with pytest.raises(ConfigError, match="not of the format of TensorFlow Datasets since"):
        listed(folder)
    write(folder, {"features.json": b"{"})
    with pytest.raises(ConfigError, match=r"features\.json is no JSON"):
        listed(folder)
    make_tfds(folder, {"train": [plain_records(1)]}, names={"label": ["hat"]})
    with pytest.raises(ConfigError, match=r"label\.labels\.txt has 1 names, and features\.json says 3"):
        listed(folder)


def test_dictionaries_without_end_are_refused_in_words() -> None:
    nested = TEXT
    for _ in range(sys.getrecursionlimit()):
        nested = dictionary({"x": nested})
    with pytest.raises(ConfigError, match="too many dictionaries within each other"):
        leaves_of(nested)


OBJECTS = {
    "image": image(),
    "objects": sequence(
        dictionary({"bbox": BOX, "label": class_label(), "is_crowd": tensor("bool"), "area": tensor("int64")})
    ),
}
NAMES = {"objects/label": ("owl", "fox", "bear")}


def with_boxes(number: int, boxes: list[float], labels: list[int], crowds: list[int] | None = None) -> bytes:
    crowds = [0] * len(labels) if crowds is None else crowds
    values: dict[str, Any] = {
        "objects/bbox": boxes, "objects/label": labels, "objects/is_crowd": crowds,
        "objects/area": [9] * len(labels),
    }  # fmt: skip
    return example(image=[jpeg(number)], **values)


def test_boxes_with_classes_become_objects(tmp_path: Path) -> None:
    one, other = [0.125, 0.25, 0.5, 0.75], [0.5, 0.5, 1.25, 1.0]
    records = [
        with_boxes(0, one + other, [1, 0], [0, 1]),
        with_boxes(1, [], []),
        with_boxes(2, [*one, 0.5, 0.5, 0.5, 0.9, *one], [2, 2, 7]),
        with_boxes(3, one, [1, 1]),
        with_boxes(4, one + one, [1, 1]),
    ]
    listing = listed(make_tfds(tmp_path, {"train": [records]}, OBJECTS, names=NAMES), labels="multi")
    table = listing.table.filter([value is not None for value in listing.table["position"].to_pylist()])
    rows = table.to_pylist()
    assert [row["feature:objects/bbox"] for row in rows[:3]] == [[*one, 0.5, 0.5, 1.0, 1.0], [], one]
    assert [row["feature:objects/label"] for row in rows[:3]] == [["fox", "owl"], [], ["bear"]]
    assert [row["feature:labels"] for row in rows[:3]] == [["fox", "owl"], [], ["bear"]]
    assert [row["label"] for row in rows[:3]] == ["fox, owl", "", "bear"]
    assert rows[0]["feature:objects/is_crowd"] == [0, 1]
    assert [row["feature:objects/num_left_out"] for row in rows[:3]] == [0, 0, 2]
    assert (rows[3]["reason"], rows[3]["feature:objects/bbox"]) == ("broken_row", [])
    assert rows[4]["feature:labels"] == ["fox"]
    said = "\n".join(listing.warnings)
    assert "1 object of no known class left out" in said
    assert "1 object without an area within the image left out" in said
    assert "the feature 'objects/area' is left out: it belongs to the objects" in said
    plain = listed(tmp_path, labels="none").table
    assert {"feature:objects_bbox", "feature:objects_label"} <= set(plain.column_names)


def test_one_object_an_image_is_a_list_too_and_labels_win_over_objects(tmp_path: Path) -> None:
    box = [0.0, 0.0, 0.5, 0.5]
    records = [with_boxes(number, box, [number]) for number in range(2)]
    folder = make_tfds(tmp_path / "one", {"train": [records]}, OBJECTS, names=NAMES)
    rows = listed(folder, labels="multi").table.to_pylist()
    assert [row["feature:labels"] for row in rows if "#" in row["uri"]] == [["owl"], ["fox"]]
    features = {**OBJECTS, "label": class_label()}
    values: dict[str, Any] = {"objects/bbox": box, "objects/label": [1], "objects/is_crowd": [0]}
    records = [example(image=[jpeg(0)], label=[2], **values, **{"objects/area": [1]})]
    folder = make_tfds(
        tmp_path / "labelled", {"train": [records]}, features, names={"label": CLASSES, **NAMES}
    )
    (row,) = (row for row in listed(folder).table.to_pylist() if "#" in row["uri"])
    assert (row["label"], row["feature:objects_bbox"]) == ("coat", box)
    twice = {**OBJECTS, "parts": OBJECTS["objects"]}
    folder = make_tfds(tmp_path / "twice", {"train": [records]}, twice, names=NAMES)
    with pytest.raises(ConfigError, match="has several lists of objects"):
        listed(folder, labels="multi")
