"""Sidecars of WebDataset samples that hold several labels, numbers, captions and other features."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.sources import list_inputs
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.infra.errors import ConfigError
from tests.samples.images.photos import jpeg
from tests.samples.sources.archives import make_tar, make_zip
from tests.samples.sources.columns import with_columns

MAKE = {"a.tar": make_tar, "a.zip": make_zip}


def config(labels: str | None, **archive: Any) -> PrepareConfig:
    source = {"kind": "archive", "labels": labels, **with_columns("archive", archive)}
    return PrepareConfig.model_validate({"source": source})


def said(folder: Path, labels: str | None, *names: str, **archive: Any) -> dict[str, tuple[Any, ...]]:
    """Member -> (label, reason, features...), without sidecars."""
    table = list_inputs(SourceFolder(str(folder)), config(labels, **archive)).table
    columns = ["uri", "label", "reason", *(f"feature:{name}" for name in names)]
    rows = (tuple(row.values()) for row in table.select(columns).to_pylist())
    return {row[0].rpartition("#")[2]: row[1:] for row in rows if row[2] != "sidecar"}


def samples(*values: Any) -> dict[str, bytes]:
    """An image and its .json for each value; bytes stand for a whole .json, None for no sidecar."""
    files = {}
    for number, value in enumerate(values):
        files[f"{number}.jpg"] = jpeg(number, 16, 16)
        if value is not None:
            files[f"{number}.json"] = value if isinstance(value, bytes) else json.dumps(value).encode()
    return files


@pytest.mark.parametrize("name", MAKE)
def test_several_labels(tmp_path: Path, name: str) -> None:
    files = samples(
        {"label": ["dog", "cat", "dog"]},
        {"label": []},
        {"label": [1, 0]},
        {"label": [7]},
        {"label": {"a": 1}},
        {"other": 1},
        b"{ broken",
        None,
        b'{"label": ["\\ud800"]}',
    )
    MAKE[name](tmp_path / name, {**files, "7.cls": b"cow"})
    # A .cls names one label, where lists are expected.
    found = said(tmp_path, "multi", "labels", class_names=["cat", "dog", "cow"])
    assert found == {
        "0.jpg": ("cat, dog", None, ["cat", "dog"]),
        "1.jpg": ("", None, []),
        "2.jpg": ("cat, dog", None, ["cat", "dog"]),
        "3.jpg": ("", "no_label", [""]),
        "4.jpg": (None, "broken_row", None),
        "5.jpg": (None, "no_label", None),
        "6.jpg": (None, "no_label", None),
        "7.jpg": ("cow", None, ["cow"]),
        "8.jpg": (None, "broken_row", None),
    }


def test_names_with_dots(tmp_path: Path) -> None:
    files = {
        f"22.{at}.{end}": data
        for at in "56"
        for end, data in (("jpg", b"x"), ("json", b'{"n": %s}' % at.encode()))
    }
    more = {
        "1.jpg": b"x",
        "1.a.json": b'{"n": 1}',
        "1.b.json": b'{"n": 2}',
        "2.jpg": b"x",
        "2.a.json": b'{"n": 3}',
    }
    make_tar(tmp_path / "a.tar", files | more)
    assert said(tmp_path, "none", "n", features="n") == {
        "1.jpg": (None, "broken_row", 1),
        "2.jpg": (None, None, 3),
        "22.5.jpg": (None, None, 5),
        "22.6.jpg": (None, None, 6),
    }


@pytest.mark.parametrize(("first", "second"), [([1, 2.5], [3, 4]), (1, 2.5)])
def test_numbers(tmp_path: Path, first: Any, second: Any) -> None:
    make_tar(tmp_path / "a.tar", samples({"age": first}, {"age": second}, {"age": "much"}, {}, {"age": None}))
    found = said(tmp_path, "targets", "targets", label="age")
    wanted = [value if isinstance(value, list) else [value] for value in (first, second)]
    assert [row[2] for row in found.values()] == [*wanted, None, None, None]
    assert [row[1] for row in found.values()] == [None, None, "broken_row", "no_label", "no_label"]


def test_captions_and_other_features(tmp_path: Path) -> None:
    files = samples({"width": 3, "box": [0, 1]}, {"width": 4}, None)
    make_tar(tmp_path / "a.tar", {**files, "0.txt": b"a cat", "2.txt": b"\xff", "1.txt": "der Hünd".encode()})
    features = {"caption": {"column": "txt", "dtype": "text"}, "width_cm": "width", "area": "box"}
    names = ("caption", "width_cm", "area")
    assert said(tmp_path, "none", *names, features=features) == {
        "0.jpg": (None, None, "a cat", 3, [0, 1]),
        "1.jpg": (None, None, "der Hünd", 4, None),
        "2.jpg": (None, None, None, None, None),
    }


@pytest.mark.parametrize("labels", [None, "none"])
def test_splits_and_groups(tmp_path: Path, labels: str | None) -> None:
    files = samples(
        {"label": "cat", "split": "val", "patient": 7},
        {"label": "cat", "split": "train", "patient": "b"},
        {"label": "cat", "split": "some", "patient": "b"},
        {"label": "cat", "split": ["val"]},
        {"label": "cat"},
    )
    make_tar(tmp_path / "train.tar", files)
    make_tar(tmp_path / "val.tar", {f"v{name}": data for name, data in samples({"label": "cat"}).items()})
    columns = {"split": "split", "group": "patient"}
    config = {"source": {"kind": "archive", "labels": labels, "columns": columns}}
    table = list_inputs(SourceFolder(str(tmp_path)), PrepareConfig.model_validate(config)).table
    rows = [row for row in table.to_pylist() if row["uri"].endswith("jpg")]
    assert [(row["split"], row["group"], row["reason"]) for row in rows] == [
        ("validation", "7", None),
        ("train", "b", None),
        ("train", "b", "unknown_split"),
        ("train", None, "broken_row"),
        ("train", None, None),
        ("validation", None, None),
    ]


def test_features_beside_one_class(tmp_path: Path) -> None:
    make_tar(tmp_path / "a.tar", samples({"label": "cat", "width": 3}, {"label": 1, "width": "wide"}))
    features = {"width_cm": {"column": "width", "dtype": "int64"}}
    assert said(tmp_path, None, "width_cm", features=features, class_names=["cat", "dog"]) == {
        "0.jpg": ("cat", None, 3),
        "1.jpg": ("dog", "broken_row", None),
    }


def test_folders_give_one_class(tmp_path: Path) -> None:
    make_tar(tmp_path / "a.tar", {f"{name}/{at}.jpg": jpeg(at, 16, 16) for name in "ab" for at in range(2)})
    with pytest.raises(ConfigError, match="come from sidecars, and there are labels by class folders"):
        said(tmp_path, "multi")
    with pytest.raises(ValidationError, match="target_columns"):
        config("multi").model_validate({"source": {"kind": "image_folder", "labels": "targets"}})


def test_a_key_with_numbers_and_texts_is_asked_for(tmp_path: Path) -> None:
    make_tar(tmp_path / "a.tar", samples({"label": "a", "n": 1}, {"label": "b", "n": "x"}))
    with pytest.raises(ConfigError, match="numbers and texts"):
        said(tmp_path, None, features="n")
    assert "features" not in config(None).source.effective()["archive"]
