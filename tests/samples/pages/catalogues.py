"""Small made-up catalogues and runs with hostile names, for tests of pages and reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.format.contract import Manifest
from shardmill.training.config import TrainConfig
from shardmill.training.results.run_files.curve import CURVE_FILE
from tests.samples.datasets.manifests import empty_manifest

HOSTILE = '<script>alert("x")</script>\'"\u202eevil'


def publish(root: Path, name: str, version: int = 1, **more: Any) -> Manifest:
    """Publish a version with two classes, one of them of a hostile name, and a report."""
    counts = {HOSTILE: 3, "cat": 2}
    shard = {
        "path": "data/p/train-00000-of-00001.tfrecord", "index_path": "data/p/train-00000-of-00001.parquet",
        "split": "train", "num_examples": 5, "num_bytes": 900, "payload_bytes": 800, "sha256": "ab" * 32,
        "index_bytes": 100, "index_sha256": "cd" * 32, "class_counts": counts,
    }  # fmt: skip
    summary = {"num_examples": 5, "num_shards": 1, "num_bytes": 900, "class_counts": counts}
    outcomes = {"num_records": 5, "num_duplicates": 1, "num_filtered": 0, "num_quarantined": 1}
    values = {
        "dataset": name, "version": version, "parent": version - 1 or None, "classes": [HOSTILE, "cat"],
        "source": f"/data/{HOSTILE}", "shards": [shard], "splits": {"train": summary},
        "accounting": {"num_inputs": 7, **outcomes}, "quarantine": {HOSTILE: 1},
        "report": "data/p/report.html", **more,
    }  # fmt: skip
    manifest = Manifest.model_validate({**empty_manifest().model_dump(mode="json"), **values})
    Catalog(root).publish(manifest)
    report = root / name / "data" / "p" / "report.html"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text("<!doctype html><title>report</title><p>the report</p>")
    return manifest


def make_run(runs: Path, name: str, accuracy: float | None = 0.75, **more: Any) -> Path:
    """Make the folder of a run; with an accuracy it is finished."""
    config = TrainConfig().model_dump(mode="json")
    identity = {"dataset": "photos@1", "config": config, **more}
    folder = runs / name
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(identity))
    (folder / "environment.json").write_text(json.dumps({"config": config}))
    write_curves(folder, 3)
    if accuracy is not None:
        metrics = {"test": {"accuracy": accuracy, "loss": 1 - accuracy, "num_examples": 5}}
        result = {"history": [{}, {}], "metrics": metrics, "images_per_second": 812.5, "notes": [HOSTILE]}
        (folder / "result.json").write_text(json.dumps(result))
        (folder / "report.html").write_text("<!doctype html><p>run report</p>")
        (folder / "confusion-test.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    return folder


def write_curves(run: Path, steps: int, first: int = 1) -> None:
    """Write the curves of some steps, as training does."""
    points = [
        {
            "split": "train",
            "step": step,
            "epoch": 1,
            "time": 0.0,
            "step_loss": 1 / step,
            "learning_rate": 0.01,
            "images_per_second": 640.0,
        }
        for step in range(first, first + steps)
    ]
    last = first + steps - 1
    points.append(
        {"split": "validation", "step": last, "epoch": 1, "time": 0.0, "loss": 0.5, "accuracy": 0.5}
    )
    with (run / CURVE_FILE).open("a") as file:
        file.writelines(json.dumps(point) + "\n" for point in points)
