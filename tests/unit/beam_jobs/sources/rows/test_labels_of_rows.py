"""Rows of files with several labels, numbers, no labels, and further features: the same from each kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pydantic import ValidationError

from shardmill.beam_jobs.tables.features import features_of
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.records import frame
from tests.samples.images.photos import jpeg
from tests.samples.sources.rows import IMAGE_STRUCT, config_of, example, listed, write_parquet

NAMES = ("cat", "dog", "cow")


def parquet(folder: Path, columns: dict[str, Any], name: str = "train.parquet") -> Path:
    count = len(next(iter(columns.values())))
    images = [{"bytes": jpeg(row, 16, 16), "path": None} for row in range(count)]
    write_parquet(folder / name, pa.table({"image": pa.array(images, IMAGE_STRUCT), **columns}))
    return folder


def tfrecord(folder: Path, rows: list[dict[str, Any]], name: str = "train.tfrecord") -> Path:
    payloads = [example(image=[jpeg(at, 16, 16)], **row) for at, row in enumerate(rows)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"".join(map(frame, payloads)))
    return folder


def array_record(folder: Path, rows: list[dict[str, Any]]) -> Path:
    from array_record.python.array_record_module import ArrayRecordWriter

    folder.mkdir(parents=True, exist_ok=True)
    writer = ArrayRecordWriter(str(folder / "train.array_record"), "group_size:1")
    for at, row in enumerate(rows):
        writer.write(example(image=[jpeg(at, 16, 16)], **row))
    writer.close()
    return folder


def arrays(folder: Path, **named: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    count = len(next(iter(named.values())))
    images = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    np.savez(folder / "train.npz", images=images, **named)
    return folder


def said(source: Path, kind: str, *names: str, **settings: Any) -> list[tuple[Any, ...]]:
    """(label, reason, features...) of each row of a file."""
    table = listed(source, kind, **settings).table
    rows = table.filter(pc.match_substring(table["uri"], "#")).select(
        ["label", "reason", *(f"feature:{name}" for name in names)]
    )
    return [tuple(row.values()) for row in rows.to_pylist()]


SEVERAL: dict[str, tuple[str, Callable[[Path], Path], dict[str, Any]]] = {
    "a list of texts": (
        "parquet",
        lambda at: parquet(at, {"tags": [["dog", "cat"], [], None, ["cow"]]}),
        {"labels": "multi"},
    ),
    "a list of numbers with names": (
        "parquet",
        lambda at: parquet(at, {"labels": [[1, 0], [], None, [2]]}),
        {"labels": "multi", "class_names": NAMES},
    ),
    "texts with a separator": (
        "parquet",
        lambda at: parquet(at, {"label": ["dog|cat", "|", None, "cow"]}),
        {"label_separator": "|"},
    ),
    "columns of 0 and 1": (
        "parquet",
        lambda at: parquet(at, {"cat": [1, 0, None, 0], "dog": [1, 0, 0, 0], "cow": [0, 0, 1, 1]}),
        {"label_columns": NAMES},
    ),
    "values of a feature": (
        "tfrecord",
        lambda at: tfrecord(at, [{"labels": [b"dog", b"cat"]}, {"labels": [b" "]}, {}, {"labels": [b"cow"]}]),
        {"labels": "multi"},
    ),
    "values of a feature of ArrayRecord": (
        "array_record",
        lambda at: array_record(
            at, [{"labels": [b"dog", b"cat"]}, {"labels": [b" "]}, {}, {"labels": [b"cow"]}]
        ),
        {"labels": "multi"},
    ),
    "features of 0 and 1": (
        "tfrecord",
        lambda at: tfrecord(
            at,
            [
                {"cat": [1], "dog": [1], "cow": [0]},
                {"cat": [0], "dog": [0], "cow": [0]},
                {"cat": [1], "dog": [1]},
                {"cat": [0], "dog": [0], "cow": [1]},
            ],
        ),
        {"label_columns": NAMES},
    ),
}


@pytest.mark.parametrize("case", SEVERAL)
def test_several_labels(case: str, tmp_path: Path) -> None:
    kind, make, settings = SEVERAL[case]
    assert said(make(tmp_path), kind, "labels", **settings) == [
        ("cat, dog", None, ["cat", "dog"]),
        ("", None, []),
        (None, "no_label", None),
        ("cow", None, ["cow"]),
    ]


def test_several_labels_of_an_array(tmp_path: Path) -> None:
    source = arrays(tmp_path, labels=np.array([[1, 1, 0], [0, 0, 0], [0, 0, 1]]))
    found = said(source, "arrays", "labels", labels="multi", class_names=NAMES, drop_labels=["cow"])
    assert found == [
        ("cat, dog", None, ["cat", "dog"]),
        ("", None, []),
        ("cow", "dropped_label", ["cow"]),
    ]
    merged = said(source, "arrays", "labels", labels="multi", merge_labels={"0": "pet", "1": "pet"})
    assert merged[0] == ("pet", None, ["pet"])


def test_names_in_the_metadata_of_lists(tmp_path: Path) -> None:
    """As Hugging Face describes a list of class labels, old and new."""
    for at, feature in enumerate(
        (
            {"feature": {"names": list(NAMES), "_type": "ClassLabel"}, "_type": "Sequence"},
            {"feature": {"names": list(NAMES), "_type": "ClassLabel"}, "_type": "List"},
            [{"names": list(NAMES), "_type": "ClassLabel"}],
        )
    ):
        images = [{"bytes": jpeg(row, 16, 16), "path": None} for row in range(2)]
        table = pa.table({"image": pa.array(images, IMAGE_STRUCT), "what": [[2, 0], [7]]})
        described = json.dumps({"info": {"features": {"what": feature}}})
        write_parquet(tmp_path / f"{at}/a.parquet", table.replace_schema_metadata({"huggingface": described}))
        assert said(tmp_path / str(at), "parquet", "labels", labels="multi")[0] == (
            "cat, cow", None, ["cat", "cow"],
        )  # fmt: skip
        assert said(tmp_path / str(at), "parquet", labels="multi")[1][1] == "no_label"


@pytest.mark.parametrize(
    ("kind", "make", "settings"),
    [
        (
            "parquet",
            lambda at: parquet(at, {"x": [1.5, 2, None], "y": [-3, 4.0, 5]}),
            {"target_columns": ["x", "y"]},
        ),
        ("parquet", lambda at: parquet(at, {"target": [[1.5, -3], [2, 4], None]}), {"labels": "targets"}),
        (
            "tfrecord",
            lambda at: tfrecord(at, [{"x": [1.5], "y": [-3]}, {"x": [2.0], "y": [4]}, {"y": [5]}]),
            {"target_columns": ["x", "y"]},
        ),
        (
            "tfrecord",
            lambda at: tfrecord(at, [{"targets": [1.5, -3.0]}, {"targets": [2.0, 4.0]}, {}]),
            {"labels": "targets"},
        ),
        (
            "array_record",
            lambda at: array_record(at, [{"x": [1.5], "y": [-3]}, {"x": [2.0], "y": [4]}, {"y": [5]}]),
            {"target_columns": ["x", "y"]},
        ),
        (
            "arrays",
            lambda at: arrays(at, y=np.array([[1.5, -3], [2, 4], [np.nan, 5]])),
            {"labels": "targets"},
        ),
    ],
)
def test_numbers(kind: str, make: Callable[[Path], Path], settings: dict[str, Any], tmp_path: Path) -> None:
    found = said(make(tmp_path), kind, "targets", **settings)
    assert [row[1:] for row in found] == [(None, [1.5, -3]), (None, [2, 4]), ("no_label", None)]
    assert found[0][0] == "1.5, -3"


def test_one_number(tmp_path: Path) -> None:
    assert said(arrays(tmp_path, y=np.array([3, 4])), "arrays", "targets", labels="targets") == [
        ("3", None, [3.0]), ("4", None, [4.0]),
    ]  # fmt: skip


def test_a_row_with_another_number_of_targets_is_broken(tmp_path: Path) -> None:
    table = listed(
        tfrecord(tmp_path, [{"targets": [1.0, 2.0]}, {"targets": [1.0]}]), "tfrecord", labels="targets"
    ).table.to_pylist()
    assert (table[-1]["reason"], table[-1]["message"]) == ("broken_row", "its targets has 1 values, not 2")


def test_no_labels_and_further_features(tmp_path: Path) -> None:
    features = {"caption": {"dtype": "text"}, "marks": {}, "score": {"column": "s"}}
    rows = [
        {"caption": [b"a cat"], "marks": [1, 2], "s": [0.5]},
        {"caption": [b"\xff\xfe"], "marks": [3], "s": [1.0]},
        {"marks": [4], "s": [2.0]},
    ]
    source = tfrecord(tmp_path / "t", rows)
    tfrecord(tmp_path / "t", [{"marks": [9], "s": [3.0]}], "validation.tfrecord")
    table = listed(source, "tfrecord", labels="none", features=features).table
    assert [str(one) for one in features_of(table)] == ["text", "int64 [any number]", "float32"]
    found = said(source, "tfrecord", "caption", "marks", "score", labels="none", features=features)
    assert [row[1:] for row in found] == [
        (None, "a cat", [1, 2], 0.5),
        ("broken_row", None, [3], 1.0),
        (None, None, [4], 2.0),
        (None, None, [9], 3.0),
    ]


def test_features_of_array_record(tmp_path: Path) -> None:
    rows = [{"caption": [b"a cat"], "marks": [1, 2], "label": [3]}, {"marks": [4], "label": [5]}]
    features = {"caption": {"dtype": "text"}, "marks": {}}
    found = said(array_record(tmp_path, rows), "array_record", "caption", "marks", features=features)
    assert found == [("3", None, "a cat", [1, 2]), ("5", None, None, [4])]


@pytest.mark.parametrize("kind", ["tfrecord", "array_record"])
def test_an_empty_list_of_labels_says_that_there_are_none(kind: str, tmp_path: Path) -> None:
    write = {"tfrecord": tfrecord, "array_record": array_record}[kind]
    source = write(tmp_path, [{"labels": [b"a"]}, {"labels": []}, {}])
    found = said(source, kind, "labels", labels="multi")
    assert [row[1:] for row in found] == [(None, ["a"]), (None, []), ("no_label", None)]


def test_features_of_arrays_and_of_parquet(tmp_path: Path) -> None:
    source = arrays(
        tmp_path / "a", y=np.array([0, 1]), box=np.eye(2, 4, dtype=np.float32), age=np.array([3, 4])
    )
    found = said(source, "arrays", "box", "years", features={"box": "box", "years": "age"})
    assert found == [("0", None, [1, 0, 0, 0], 3), ("1", None, [0, 1, 0, 0], 4)]
    source = parquet(tmp_path / "p", {"label": ["a", "b"], "text": ["x", None]})
    parquet(tmp_path / "p", {"label": ["a"], "text": pa.nulls(1)}, "z.parquet")
    assert said(source, "parquet", "text", features="text") == [
        ("a", None, "x"), ("b", None, None), ("a", None, None),
    ]  # fmt: skip


def test_a_file_that_ends_early_keeps_its_features(tmp_path: Path) -> None:
    source = tfrecord(tmp_path, [{"labels": [b"a", b"b"], "n": [row]} for row in range(3)])
    tfrecord(tmp_path, [{"labels": [b"b"], "n": [7]}], "val.tfrecord")
    file = source / "train.tfrecord"
    file.write_bytes(file.read_bytes()[:-20])
    found = said(source, "tfrecord", "labels", "n", labels="multi", features="n")
    assert [row[1:] for row in found] == [
        (None, ["a", "b"], 0),
        (None, ["a", "b"], 1),
        ("broken_container", None, None),
        (None, ["b"], 7),
    ]


@pytest.mark.parametrize(
    ("kind", "make", "settings", "message"),
    [
        (
            "arrays",
            lambda at: arrays(at, y=np.array([0, 1])),
            {"labels": "multi"},
            "does not say by 0 and 1",
        ),
        ("arrays", lambda at: arrays(at, y=np.eye(3)), {}, "labels=multi"),
        ("arrays", lambda at: arrays(at, y=np.eye(2)), {"features": "age"}, "no array 'age'"),
        ("tfrecord", lambda at: tfrecord(at, [{"label": [1]}]), {"features": "capion"}, "feature 'capion'"),
        ("tfrecord", lambda at: tfrecord(at, [{"label": [1]}]), {"target_columns": "x"}, "no feature 'x'"),
        ("parquet", lambda at: parquet(at, {"label": ["a"]}), {"features": "caption"}, "no column 'caption'"),
        (
            "parquet",
            lambda at: parquet(at, {"label": ["a"], "flags": [[1]]}),
            {"label_columns": ["flags"]},
            "labels=multi",
        ),
        ("parquet", lambda at: parquet(at, {"target": ["much"]}), {"labels": "multi", "label": "no"}, "'no'"),
    ],
)
def test_what_is_refused(
    kind: str, make: Callable[[Path], Path], settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        listed(make(tmp_path), kind, **settings)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"labels": "class", "target_columns": ["x"]},
        {"labels": "targets", "drop_labels": ["a"]},
        {"labels": "none", "class_names": ["a"]},
        {"labels": "targets", "label_separator": ","},
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="labels ="):
        config_of("parquet", **settings)


def test_new_settings_leave_the_digests_of_before() -> None:
    rows = config_of("parquet", label="what").source.effective()["rows"]
    assert not {"label_separator", "label_columns", "target_columns", "features"} & set(rows)
