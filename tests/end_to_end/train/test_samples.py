"""Files of instruments become a dataset, train, are evaluated, exported and predicted: one command each."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from shardmill.training.evaluate import evaluate_run
from shardmill.training.predict import predict
from shardmill.training.results.run_files.run_folder import open_run
from tests.samples.images.instruments import make_instrument_files
from tests.samples.preparing.prepared import run as prepare
from tests.samples.training.trainer import settings, train_here

RULES = {"splits": {"train": 0.5, "validation": 0.25, "test": 0.25}, "groups": {"near_duplicates": False}}
LEARN = {"learning_rate": 0.02}


def predicted(run_dir: str, paths: list[Path], out: Path) -> list[dict[str, Any]]:
    predict(open_run(run_dir, out.parent), paths, out, "json")
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_five_channels_of_16_bits_train_and_predict(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    photos = make_instrument_files(tmp_path / "photos", "uint16", 5, 16)
    image = {"depth": "keep", "channels": "keep", "size": 32}
    prepare(photos, tmp_path / "datasets", image=image, **RULES)
    asked = settings(
        model={"name": "small_cnn"}, optimizer=LEARN, run={"epochs": 3}, export={"formats": ["litert"]},
        augment={"vertical_flip": True, "erasing": {"probability": 0.2}},
    )  # fmt: skip
    result = train_here(tmp_path, "d", asked)
    assert result["metrics"]["test"]["accuracy"] == 1.0
    assert result["exports"]["litert"]["agreement"] == 1.0
    # The export sees of the files what the model saw of their records.
    on_files = result["on_source_files"]
    assert (on_files["num_files"], on_files["same_pixels"], on_files["refused"]) == (8, 8, {})
    assert on_files["max_difference"] <= 1e-6
    again = evaluate_run(open_run(result["run_dir"], tmp_path), tmp_path / "datasets", "validation")
    assert again["metrics"]["num_examples"] == 8
    # Files of other samples are refused, each by itself.
    array, grey = tmp_path / "array.npy", tmp_path / "grey.tif"
    np.save(array, np.moveaxis(tifffile.imread(photos / "membrane" / "03.tif"), 0, 2))
    tifffile.imwrite(grey, np.zeros((40, 40), np.uint16))
    rows = predicted(result["run_dir"], [photos / "nuclei" / "00.tif", array, grey], tmp_path / "rows.json")
    assert [row.get("predicted") for row in rows] == ["nuclei", "membrane", None]
    assert rows[2]["reason"] == "other_samples"
    assert rows[2]["message"] == "it is uint16 with 1 channel, and the model takes uint16 with 5 channels"
    signatures = tf.saved_model.load(result["export_dir"]).signatures
    given = signatures["serving_default"].structured_input_signature[1]["images"]
    assert (given.dtype, given.shape.as_list()) == (tf.uint16, [None, 16, 16, 5])


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "channels"), [("uint16", 5), ("float32", 4)])
def test_one_command_each(tmp_path: Path, dtype: str, channels: int) -> None:
    pytest.importorskip("tensorflow")
    photos = make_instrument_files(tmp_path / "photos", dtype, channels, 30)
    places = ["--root", str(tmp_path / "datasets"), "--runs", str(tmp_path / "runs")]

    def command(*words: str) -> dict[str, Any]:
        argv = [sys.executable, "-m", "shardmill.flows.cli", *words, "--json"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=600, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    kept = ["--set", "image.depth=keep", "--set", "image.channels=keep", "--set", "image.size=32"]
    command("prepare", str(photos), "--dataset", "d", *places[:2], *kept)
    how = ["model.name=compact_resnet", "data.image_size=32", "data.global_batch_size=8", "run.epochs=8"]
    how += ['export.formats=["onnx","litert"]', "augment.cutmix=1.0", "optimizer.learning_rate=0.01"]
    result = command("train", "d", *places, *(word for one in how for word in ("--set", one)))
    assert result["metrics"]["test"]["accuracy"] == 1.0
    assert {form["agreement"] for form in result["exports"].values()} == {1.0}
    assert result["on_source_files"]["same_pixels"] == result["on_source_files"]["num_files"] > 0
    assert command("evaluate", result["run_dir"], *places)["metrics"]["accuracy"] == 1.0
    out = tmp_path / "found.csv"
    found = command("predict", result["run_dir"], str(photos), "--out", str(out), *places)
    assert (found["predicted"], found["refused"]) == (60, 0)
    rows = list(csv.DictReader(out.read_text().splitlines()))
    right = sum(row["predicted"] == Path(row["path"]).parent.name for row in rows)
    assert right >= 58
