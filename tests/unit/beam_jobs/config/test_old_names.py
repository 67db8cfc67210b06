"""Old names of settings: read with a warning that names the new one, with the digests of earlier releases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import ConfigError
from shardmill.infra.progress import subscribe
from shardmill.infra.settings import STORED, load_settings

# The settings of a source as release 0.1 has them, as they are called now, and their digest in both.
NAMES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"kind": "table", "table": {
            "file": "l.csv", "path_column": "image", "label_column": "breed", "split_column": "s",
            "group_column": "g", "drop_labels": ["a"], "merge_labels": {"b": "c"},
        }},
        {"kind": "table", "table": {"file": "l.csv"}, "columns": {
            "image": "image", "label": "breed", "split": "s", "group": "g", "drop_labels": ["a"],
            "merge_labels": {"b": "c"},
        }},
        "ad6095ab067cc77f",
    ),
    (
        {"kind": "table", "table": {
            "file": "l.csv", "path_column": "path", "label_column": "label", "class_names": ["a", "b"],
            "features": {"x": "X y", "n": {"dtype": "int64"}},
        }},
        {"kind": "table", "table": {"file": "l.csv"}, "columns": {
            "class_names": ["a", "b"], "features": {"x": "X y", "n": {"dtype": "int64"}},
        }},
        "e57061ecdad2da5c",
    ),
    (
        {"kind": "urls", "table": {"file": "u.csv", "path_column": "url", "drop_labels": "x"}},
        {"kind": "urls", "table": {"file": "u.csv"}, "columns": {"image": "url", "drop_labels": "x"}},
        "820aae90117f6a30",
    ),
    (
        {"kind": "parquet", "rows": {
            "image": "i", "label": "l", "split": "s", "group": "g", "drop_labels": ["q"],
            "merge_labels": {"a": "b"}, "class_names": ["a"],
        }},
        {"kind": "parquet", "columns": {
            "image": "i", "label": "l", "split": "s", "group": "g", "drop_labels": ["q"],
            "merge_labels": {"a": "b"}, "class_names": ["a"],
        }},
        "5d62cda0b46d06a7",
    ),
    (
        {"kind": "tfrecord", "labels": "targets", "rows": {"target_columns": ["x", "y"]}},
        {"kind": "tfrecord", "labels": "targets", "columns": {"target_columns": ["x", "y"]}},
        "1d3c58cc2523243b",
    ),
    (
        {"kind": "tfds", "tfds": {"features": ["b", "objects/area"], "splits": {"x": "train"}},
         "rows": {"class_names": ["a"], "label": "l"}},
        {"kind": "tfds", "tfds": {"splits": {"x": "train"}}, "columns": {
            "features": {"b": "b", "objects_area": "objects/area"}, "class_names": ["a"], "label": "l",
        }},
        "1eeec3d60b67c0b7",
    ),
    (
        {"kind": "archive", "archive": {
            "label_key": "cls", "name_key": "n", "class_names": ["a"], "drop_labels": ["x"],
            "merge_labels": {"a": "b"}, "split_key": "s", "group_key": "g", "features": ["txt", "w"],
        }},
        {"kind": "archive", "archive": {"name_key": "n"}, "columns": {
            "label": "cls", "class_names": ["a"], "drop_labels": ["x"], "merge_labels": {"a": "b"},
            "split": "s", "group": "g", "features": ["txt", "w"],
        }},
        "c368c9b2f775d142",
    ),
    (
        {"kind": "coco", "objects": {
            "annotations": "a.json", "drop_labels": "x", "merge_labels": {"a": "b"},
        }},
        {"kind": "coco", "objects": {"annotations": "a.json"},
         "columns": {"drop_labels": "x", "merge_labels": {"a": "b"}}},
        "8a1c61070f905e4c",
    ),
    (
        {"kind": "box_table", "objects": {"annotations": "b.csv", "table": {
            "path_column": "I", "label_column": "L", "features": ["price"], "delimiter": ";",
            "units": "relative",
        }}},
        {"kind": "box_table", "table": {"delimiter": ";"},
         "objects": {"annotations": "b.csv", "table": {"units": "relative"}},
         "columns": {"image": "I", "label": "L", "features": ["price"]}},
        "2a3c5eec244d072d",
    ),
]  # fmt: skip
KINDS = [now["kind"] for _, now, _ in NAMES]


@pytest.mark.parametrize(("before", "now", "digest"), NAMES, ids=KINDS)
def test_both_names_are_the_same_settings_with_the_digest_of_earlier_releases(
    before: dict[str, Any], now: dict[str, Any], digest: str
) -> None:
    wanted = PrepareConfig.model_validate({"source": now})
    with pytest.warns(
        FutureWarning, match=r"the setting source\.\S+ is called source\.(columns|table)\.\S+ now"
    ):
        assert PrepareConfig.model_validate({"source": before}) == wanted
    assert digest_of(wanted.source.effective()) == digest
    stored = PrepareConfig.model_validate({"source": before}, context=STORED)
    assert not stored.changes_since({"source": before})


def test_a_whole_configuration_of_an_earlier_release_is_understood() -> None:
    """Its groups of other kinds hold defaults, which say nothing."""
    usual = {"path_column": "path", "label_column": "label", "drop_labels": [], "features": {}, "file": None}
    files = {"format": "auto", "delimiter": None, "quotes": True, "encoding": None}
    boxes = {"path_column": "I", "label_column": "label", **files, "delimiter": "|"}
    source = {
        "kind": "box_table",
        "table": {**usual, **files},
        "rows": {"label": None, "features": {}, "class_names": []},
        "archive": {"label_key": "label", "features": {}},
        "objects": {"annotations": "b.csv", "drop_labels": [], "table": boxes},
        "tfds": {"features": None},
    }
    found = PrepareConfig.model_validate({"source": source}, context=STORED).source
    assert found.columns.model_dump(exclude_defaults=True) == {"image": "I"}
    assert found.table.delimiter == "|"


def test_files_and_overrides_may_have_old_names(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        '[prepare.source]\nkind = "table"\n[prepare.source.table]\nfile = "t.csv"\nlabel_column = "breed"\n'
    )
    overrides = ["source.table.path_column=image", "source.table.features.n.dtype=int64"]
    events: list[dict[str, Any]] = []
    unsubscribe = subscribe(events.append)
    try:
        config = load_settings(
            PrepareConfig, section="prepare", config=tmp_path / "c.toml", overrides=overrides
        )
        reset = load_settings(
            PrepareConfig,
            section="prepare",
            config=tmp_path / "c.toml",
            overrides=["source.table.label_column="],
        )
        later = load_settings(
            PrepareConfig,
            section="prepare",
            config=tmp_path / "c.toml",
            overrides=["source.columns.label=class"],
        )
    finally:
        unsubscribe()
    columns = config.source.columns
    assert (columns.image, columns.label, columns.further["n"].dtype) == ("image", "breed", "int64")
    assert reset.source.columns.label is None
    assert later.source.columns.label == "class", "an override wins over the old name in a file"
    said = [event["message"] for event in events if event.get("level") == "warning"]
    assert (
        f"{tmp_path}/c.toml: the setting source.table.label_column is called source.columns.label now"
        in (said[0].partition(";")[0])
    )
    assert any(text.startswith("--set source.table.path_column=image: the setting") for text in said)


def test_an_old_name_is_told_before_anybody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    overrides = ["source.kind=parquet", "source.table.label_column=breed"]
    load_settings(PrepareConfig, section="prepare", overrides=overrides)
    told = capsys.readouterr().err
    assert told.startswith("warning: --set source.table.label_column=breed: the setting")
    assert "is called source.columns.label now" in told


def test_two_values_of_one_setting_are_refused() -> None:
    both = {"table": {"label_column": "a"}, "columns": {"label": "b"}}
    with pytest.raises(
        ConfigError, match=r"source\.table\.label_column is the old name of source\.columns\.label"
    ):
        load_settings(PrepareConfig, section="prepare", given={"source": both})


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"kind": "image_folder", "columns": {"label": "x"}}, "kind image_folder has no columns"),
        (
            {"kind": "arrays", "columns": {"label_columns": ["a"]}},
            "arrays takes no columns.label_columns",
        ),
        ({"kind": "coco", "columns": {"split": "s"}}, "kind coco takes no columns.split"),
        ({"kind": "tfds", "columns": {"features": {"x": {"dtype": "text"}}}}, "leave dtype, separator and"),
        (
            {"kind": "tfrecord", "columns": {"mask": "m"}},
            "masks need the classes",
        ),
    ],
)
def test_columns_that_a_kind_does_not_take_are_refused(source: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_settings(PrepareConfig, section="prepare", given=json.loads(json.dumps({"source": source})))


def test_a_manifest_with_the_former_default_of_coordinates_is_read() -> None:
    """Earlier releases wrote all settings of all kinds, and ``objects.coordinates`` was "stored" in them."""
    written = PrepareConfig().model_dump(mode="json")
    written["source"]["objects"]["coordinates"] = "stored"
    for name in ("task", "unannotated"):
        del written["source"]["objects"][name]
    read = PrepareConfig.model_validate(written, context=STORED)
    assert read.effective() == PrepareConfig().effective()
    assert read.in_use() == PrepareConfig().in_use()
