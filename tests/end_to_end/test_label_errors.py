"""Likely label errors of the train split, from models that have not seen the examples."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flows import cli
from tests.samples.published import coloured, publish

SETTINGS = [
    "data.image_size=16", "data.global_batch_size=8", "run.epochs=6", "augment.horizontal_flip=false",
    "optimizer.learning_rate=0.01",
]  # fmt: skip
WRONG = (3, 17, 25)


def test_wrong_labels_of_the_train_split_are_found_and_finished_folds_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures = coloured({"train": {"blue": 24, "green": 24}, "validation": {"blue": 4, "green": 4}})
    for number in WRONG:
        other = {"blue": "green", "green": "blue"}[pictures[number].label_name]
        pictures[number] = replace(pictures[number], label_name=other)
    version = publish(tmp_path / "datasets", pictures, name="colours")
    places = ["--root", str(tmp_path / "datasets"), "--runs", str(tmp_path / "runs")]
    asked = ["label-errors", "colours", "--folds", "2", "--json", *places]
    asked += [part for setting in SETTINGS for part in ("--set", setting)]
    assert cli.run(asked) == 0
    found = json.loads(capsys.readouterr().out)
    with Path(found["file"]).open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["id", "source_uri", "split", "given_label", "suggested_label", "score"]
    assert {row["split"] for row in rows} == {"train"}
    assert len(rows) == found["num_likely"]
    wrong = {row["id"] for row in rows[: len(WRONG)]}
    index = [version.index(shard) for shard in version.shards("train")]
    ids = [table["id"].to_pylist() for table in index]
    stored = {number: ids[number % 2][number // 2] for number in range(48)}
    assert wrong == {stored[number] for number in WRONG}
    predictions = pq.read_table(found["predictions"])
    assert sorted(predictions["id"].to_pylist()) == sorted(stored.values()), "each example once"
    page = Path(found["report"]).read_text(encoding="utf-8")
    assert page.count("<figure>") == len(rows)
    results = [Path(run) / "result.json" for run in found["runs"]]
    folds = [json.loads(path.read_bytes()) for path in results]
    assert [fold["left_out"]["metrics"]["num_examples"] for fold in folds] == [24, 24]
    assert "fold 2 of 2 of the train split was left out" in folds[1]["notes"]
    # As after an interruption: the folds are done, the list is not written yet.
    before = [path.stat().st_mtime_ns for path in results]
    Path(found["file"]).unlink()
    assert cli.run(asked) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert [path.stat().st_mtime_ns for path in results] == before
    assert Path(found["file"]).exists()
