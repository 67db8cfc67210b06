"""Likely label errors of the train split, from models that have not seen them, and their correction."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from shardmill.flows import cli
from shardmill.infra.codecs import encode
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.progress import subscribe
from tests.samples.datasets.published import coloured
from tests.samples.images.drawn_objects import draw_objects, objects_config
from tests.samples.preparing.prepared import rows, run

SETTINGS = [
    "data.image_size=16", "data.global_batch_size=8", "run.epochs=6", "augment.horizontal_flip=false",
    "optimizer.learning_rate=0.01",
]  # fmt: skip
WRONG = (3, 17, 25)
OTHER = {"blue": "green", "green": "blue"}
PREPARE: dict[str, Any] = {"image": {"resize": "none"}, "groups": {"near_duplicates": False}}


def make_source(folder: Path) -> list[str]:
    """Write pictures in folders of splits and classes, some in the wrong one; returns the URIs of those."""
    wrong = []
    for number, made in enumerate(
        coloured({"train": {"blue": 24, "green": 24}, "validation": {"blue": 4, "green": 4}})
    ):
        label = OTHER[made.label_name] if number in WRONG else made.label_name
        uri = f"{made.split}/{label}/{number:02}.jpg"
        (folder / uri).parent.mkdir(parents=True, exist_ok=True)
        (folder / uri).write_bytes(encode(made.pixels, "jpeg", 92))
        wrong += [uri] if number in WRONG else []
    return wrong


@pytest.mark.slow
def test_wrong_labels_are_found_and_corrected_in_the_next_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, root = tmp_path / "colours", tmp_path / "datasets"
    wrong = make_source(source)
    run(source, root, **PREPARE)
    asked = ["label-errors", "d", "--folds", "2", "--json", "--root", str(root)]
    asked += ["--runs", str(tmp_path / "runs")]
    asked += [part for setting in SETTINGS for part in ("--set", setting)]
    assert cli.run(asked) == 0
    found = json.loads(capsys.readouterr().out)
    with Path(found["file"]).open(newline="") as stream:
        listed = list(csv.DictReader(stream))
    assert {row["split"] for row in listed} == {"train"}
    assert len(listed) == found["num_likely"]
    assert {row["source_uri"] for row in listed[: len(WRONG)]} == set(wrong)
    predictions = pq.read_table(found["predictions"])
    version = Catalog(root).open("d@1")
    ids = [name for shard in version.shards("train") for name in version.index(shard)["id"].to_pylist()]
    assert sorted(predictions["id"].to_pylist()) == sorted(ids), "each example once"
    page = Path(found["report"]).read_text(encoding="utf-8")
    assert page.count("<figure>") == len(listed)
    results = [Path(run_dir) / "result.json" for run_dir in found["runs"]]
    folds = [json.loads(path.read_bytes()) for path in results]
    assert [fold["left_out"]["metrics"]["num_examples"] for fold in folds] == [24, 24]
    assert "fold 2 of 2 of the train split was left out" in folds[1]["notes"]
    _check_corrections(source, root, Path(found["file"]), listed)
    # As after an interruption: the folds are done, the list is not written yet.
    before = [path.stat().st_mtime_ns for path in results]
    Path(found["file"]).unlink()
    again = [word if word != "d" else "d@1" for word in asked]
    assert cli.run(again) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert [path.stat().st_mtime_ns for path in results] == before
    assert Path(found["file"]).exists()


def _check_corrections(source: Path, root: Path, file: Path, listed: list[dict[str, str]]) -> None:
    """Check that the list changes nothing until a person decides, and then exactly what was decided."""
    edited = {**PREPARE, "source": {"label_edits": str(file)}}
    assert run(source, root, **edited)["unchanged"]
    before = rows(Catalog(root).open("d"))
    first, second, third = (row["source_uri"] for row in listed[: len(WRONG)])
    decisions = {first: {"decision": "accept"}, second: {"label": OTHER[listed[1]["given_label"]]}}
    decisions[third] = {"decision": "drop"}
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(listed[0]))
        writer.writeheader()
        writer.writerows(row | decisions.get(row["source_uri"], {}) for row in listed)
    made = run(source, root, **edited)
    assert (made["version"], made["num_encoded"]) == (2, 0)
    after = rows(Catalog(root).open("d"))
    assert {uri for uri in after if after[uri]["label"] != before[uri]["label"]} == {first, second}
    assert {uri: row["reason"] for uri, row in after.items() if row["outcome"] != "record"} == {
        third: "label_edit"
    }
    manifest = Catalog(root).open("d").manifest
    assert manifest.label_edits is not None
    assert (manifest.label_edits.num_labels, manifest.label_edits.num_left_out) == (2, 1)
    assert "label edits" in (root / "d" / str(manifest.report)).read_text(encoding="utf-8").lower()
    assert run(source, root, **edited)["unchanged"]
    said: list[Any] = []
    stop = subscribe(lambda event: said.append(event.get("message")))
    back = run(source, root, **PREPARE)
    stop()
    assert (back["num_records"], back["num_encoded"]) == (56, 1), "the image that was left out is read again"
    assert any("has label edits, and this run has none" in str(message) for message in said)


def searched(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    """Search the train split of the dataset ``d`` in ``folder`` with two folds; return the result."""
    asked = ["label-errors", "d", "--folds", "2", "--json", "--root", str(folder / "datasets")]
    asked += ["--runs", str(folder / "runs"), *more]
    assert cli.run(asked) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    page = Path(found["report"]).read_text(encoding="utf-8")
    assert "unseen examples" in page
    return found


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["multi", "targets"])
def test_other_labels_are_searched_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], labels: str
) -> None:
    """Blue pictures have the tag ``b`` and the number 1, green ones ``g`` and 0; three say otherwise."""
    source = tmp_path / "colours"
    source.mkdir()
    lines = ["path,split,tags,number"]
    for number, made in enumerate(coloured({"train": {"blue": 24, "green": 24}, "test": {"blue": 2}})):
        (source / f"{number:02}.jpg").write_bytes(encode(made.pixels, "jpeg", 92))
        is_blue = (made.label_name == "blue") != (number in WRONG and made.split == "train")
        lines.append(f"{number:02}.jpg,{made.split},{'b;x' if is_blue else 'g'},{int(is_blue)}")
    (source / "labels.csv").write_text("\n".join(lines))
    columns = (
        {"label": "tags", "label_separator": ";"} if labels == "multi" else {"target_columns": ["number"]}
    )
    table = {"kind": "table", "table": {"file": "labels.csv"}, "labels": labels}
    run(source, tmp_path / "datasets", **PREPARE, source={**table, "columns": {"split": "split", **columns}})
    found = searched(tmp_path, capsys, *(part for setting in SETTINGS for part in ("--set", setting)))
    assert found["task"] == {"multi": "multi-label", "targets": "regression"}[labels]
    assert found["num_examples"] == 48
    with Path(found["file"]).open(newline="") as stream:
        listed = list(csv.DictReader(stream))
    assert {int(row["source_uri"][:2]) for row in listed[: len(WRONG)]} == set(WRONG)


@pytest.mark.slow
def test_objects_are_searched_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The detector learns so little here that its findings are withheld."""
    counts = {"train": 24, "validation": 4, "test": 4}
    draw_objects(tmp_path / "source", counts, seed=1)
    run(tmp_path / "source", tmp_path / "datasets", **objects_config(counts))
    small = ["data.image_size=64", "data.global_batch_size=8", "run.epochs=1"]
    found = searched(tmp_path, capsys, *(part for setting in small for part in ("--set", setting)))
    assert (found["task"], found["num_examples"]) == ("detection", 24)
    assert "finds less than 50%" in found["withheld"]
