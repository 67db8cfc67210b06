"""Images with several labels, with numbers, and without labels, through the whole of prepare."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardmill.beam_jobs.maintain.compaction import compact
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.compare import diff
from shardmill.infra.dataset.exports import FORMATS
from shardmill.infra.dataset.exports.export import export
from shardmill.infra.dataset.verify import verify
from shardmill.infra.dataset.version import DatasetVersion
from tests.samples.datasets.contents import indexed_records
from tests.samples.images.photos import jpeg, write
from tests.samples.preparing.prepared import rows, run
from tests.samples.sources.columns import with_columns

COUNT = 40
OTHERS: dict[str, Any] = {
    "image": {"size": 16},
    "groups": {"near_duplicates": False},
    "failure_budget": 0.5,
    "shards": {"num_shards": 2},
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 photographs; the last two have the same bytes."""
    files = {f"{n:02}.jpg": jpeg(n + 1) for n in range(COUNT - 1)}
    return write(tmp_path_factory.mktemp("labels") / "photos", files | {"39.jpg": jpeg(39)})


def prepare(photos: Path, root: Path, lines: Sequence[Sequence[str]], **source: Any) -> DatasetVersion:
    table = root.with_suffix(".csv")
    with table.open("w", newline="") as stream:
        csv.writer(stream).writerows(lines)
    labels = {key: source.pop(key) for key in ("labels",) if key in source}
    settings = {"kind": "table", **labels, **with_columns("table", {"file": str(table), **source})}
    run(photos, root, source=settings, **OTHERS)
    return Catalog(str(root)).open("d")


def records(version: DatasetVersion) -> dict[str, dict[str, Any]]:
    """File -> split, what the index says, and the keys and features of the record itself."""
    found = {}
    for shard, row, record, features in indexed_records(version):
        stored = {name: value.values for name, value in features.items()}
        found[row["source_uri"]] = row | {"split": shard.split, "stored": stored, "record": record}
    return found


def tags(number: int) -> list[str]:
    return [name for name, every in (("cat", 2), ("dog", 3), ("egg", 20)) if number % every == 0]


def multi_lines() -> list[list[str]]:
    lines = [[f"{n:02}.jpg", " ; ".join(reversed(tags(n))) or "none"] for n in range(COUNT - 1)]
    lines[7][1], lines[11][1] = "", "Skip;cat"
    return [["path", "tags"], *lines, ["39.jpg", "dog"]]


def test_several_labels(photos: Path, tmp_path: Path) -> None:
    table: dict[str, Any] = {
        "label": "tags",
        "label_separator": ";",
        "drop_labels": ["Skip"],
        "merge_labels": {"egg": "cat"},
    }
    version = prepare(photos, tmp_path / "root", multi_lines(), **table)
    manifest = version.manifest
    assert (manifest.label_kind, manifest.classes) == ("multi", ["cat", "dog", "none"])
    assert manifest.format_version == 3
    assert "label" not in manifest.features
    found, inputs = records(version), rows(version)
    assert found["00.jpg"]["stored"] == {"labels": [0, 1]}
    assert (found["00.jpg"]["labels"], found["00.jpg"]["label"]) == ([0, 1], -1)
    assert (found["00.jpg"]["record"].label, found["00.jpg"]["record"].label_name) == (-1, "")
    assert found["01.jpg"]["labels"] == [2]
    assert inputs["00.jpg"]["label"] == "cat, dog"
    assert (inputs["07.jpg"]["reason"], inputs["11.jpg"]["reason"]) == ("no_label", "dropped_label")
    (conflict,) = manifest.label_conflicts
    assert (conflict.uris, conflict.labels) == (["38.jpg", "39.jpg"], ["cat", "dog"])
    cats = [row for row in found.values() if 0 in row["labels"]]
    assert sum(split.class_counts["cat"] for split in manifest.splits.values()) == len(cats)
    for label in range(3):
        of_label = [row["split"] for row in found.values() if label in row["labels"]]
        assert abs(of_label.count("train") - 0.8 * len(of_label)) <= 1.5
    assert not verify(version).problems


def test_labels_change_and_versions_are_compared(photos: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    table: dict[str, Any] = {"label": "tags", "label_separator": ";"}
    lines = multi_lines()
    first = prepare(photos, root, lines, **table)
    lines[5][1] = "cow"
    second = prepare(photos, root, lines, **table)
    assert second.manifest.classes == [*first.manifest.classes, "cow"]
    assert records(second)["04.jpg"]["stored"]["labels"] == [second.manifest.classes.index("cow")]
    found = diff(first, second)
    assert (found.relabelled.count, found.class_counts["cow"]) == (1, (0, 1))
    assert {uri: row["split"] for uri, row in records(first).items()} == {
        uri: row["split"] for uri, row in records(second).items()
    }
    compact(Catalog(str(root)), "d")
    after = Catalog(str(root)).open("d")
    assert {uri: row["stored"] for uri, row in records(after).items()} == {
        uri: row["stored"] for uri, row in records(second).items()
    }
    assert not verify(after).problems


def test_columns_of_zero_and_one(photos: Path, tmp_path: Path) -> None:
    lines = [[f"{n:02}.jpg", str(int(n % 2 == 0)), ["no", "TRUE"][n % 3 == 0]] for n in range(COUNT)]
    lines[1][1], lines[3][2] = "", "perhaps"
    version = prepare(
        photos, tmp_path / "root", [["path", "cat", "dog"], *lines], label_columns=["dog", "cat"]
    )
    found, inputs = records(version), rows(version)
    assert version.manifest.classes == ["cat", "dog"]
    assert (found["06.jpg"]["labels"], found["05.jpg"]["labels"]) == ([0, 1], [])
    assert inputs["01.jpg"]["reason"] == "no_label"
    assert {row["message"] for row in inputs.values() if row["reason"] == "broken_row"} == {
        "row 4 of " + str(tmp_path / "root.csv") + ": its dog is perhaps, not 0 or 1"
    }
    assert not verify(version).problems


def test_targets(photos: Path, tmp_path: Path) -> None:
    lines = [[f"{n:02}.jpg", str(n / 2), str(-n)] for n in range(COUNT)]
    lines[4][1], lines[9][2] = "", "far"
    version = prepare(photos, tmp_path / "root", [["path", "age", "x"], *lines], target_columns=["age", "x"])
    manifest, found, inputs = version.manifest, records(version), rows(version)
    assert (manifest.label_kind, manifest.classes, manifest.format_version) == ("targets", [], 3)
    assert [str(feature) for feature in manifest.extra_features] == ["float32 [2]"]
    assert found["03.jpg"]["stored"] == {"targets": [1.5, -3.0]}
    assert inputs["03.jpg"]["label"] == "1.5, -3"
    assert inputs["04.jpg"]["reason"] == "no_label"
    (broken,) = (row for row in inputs.values() if row["reason"] == "broken_row")
    assert broken["message"].endswith("its x is 'far', not a number")
    (conflict,) = manifest.label_conflicts
    assert conflict.labels == ["19, -38", "19.5, -39"]
    in_train = sorted(row["targets"][0] for row in found.values() if row["split"] == "train")
    assert in_train[0] < 3
    assert in_train[-1] > 17
    assert not verify(version).problems


def test_captions_without_labels(photos: Path, tmp_path: Path) -> None:
    lines = [[f"{n:02}.jpg", f"a photo of {n}"] for n in range(COUNT)]
    version = prepare(
        photos, tmp_path / "root", [["path", "caption"], *lines], labels="none", features=["caption"]
    )
    manifest, found = version.manifest, records(version)
    assert (manifest.label_kind, manifest.classes, manifest.label_conflicts) == ("none", [], [])
    assert {row["stored"]["caption"][0] for row in found.values()} == {
        f"a photo of {n}".encode() for n in range(COUNT - 1)
    }
    assert manifest.splits["train"].num_examples == 31
    assert not verify(version).problems


def test_a_folder_without_classes(photos: Path, tmp_path: Path) -> None:
    run(photos, tmp_path / "root", source={"labels": "none"}, **OTHERS)
    version = Catalog(str(tmp_path / "root")).open("d")
    assert version.manifest.label_kind == "none"
    assert len(records(version)) == COUNT - 1
    assert not verify(version).problems
    document = json.loads((tmp_path / "root/d/manifests/000001.json").read_text())
    assert document["format_version"] == 3
    report = (tmp_path / "root/d" / str(version.manifest.report)).read_text()
    assert "the images have none" in report


def test_several_labels_are_exported_and_asked_for_by_name(photos: Path, tmp_path: Path) -> None:
    table: dict[str, Any] = {"label": "tags", "label_separator": ";"}
    version = prepare(photos, tmp_path / "root", multi_lines(), **table)
    dogs = version.query("'dog' in labels")
    number = version.manifest.classes.index("dog")
    expected = {row["id"]: row["labels"] for row in records(version).values() if number in row["labels"]}
    for name in set(FORMATS) - {"tfds", "yolo"}:
        made = export(dogs, tmp_path / name, name)
        assert made.num_records == len(expected)
        assert sum(split["class_counts"]["dog"] for split in made.summary["splits"].values()) == len(expected)
    tables = [pq.read_table(path) for path in (tmp_path / "parquet").glob("*.parquet")]
    found = pa.concat_tables(table.select(["id", "label", "label_name", "labels"]) for table in tables)
    assert dict(zip(found["id"].to_pylist(), found["labels"].to_pylist(), strict=True)) == expected
    assert found["label"].null_count == found["label_name"].null_count == len(expected)
    assert len(list((tmp_path / "folder").glob("train/*.jpg"))) > 0
    assert not verify(version).problems
