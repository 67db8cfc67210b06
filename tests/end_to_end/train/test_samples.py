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
from PIL import Image

from shardmill import open_dataset
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["masks", "coco"])
def test_masks_and_boxes_of_five_channels_of_16_bits(tmp_path: Path, kind: str) -> None:
    """A rectangle is bright in one channel, which tells its class: mask and box must lie where it is."""
    pytest.importorskip("tensorflow")
    random, photos, boxes = np.random.default_rng(0), tmp_path / "photos", []
    for name in ("images", "masks"):
        (photos / name).mkdir(parents=True)
    for number in range(24):
        pixels = random.integers(0, 3_000, (48, 56, 5)).astype(np.uint16)
        top, left = int(random.integers(2, 26)), int(random.integers(2, 32))
        box, mask = (slice(top, top + 20), slice(left, left + 22)), np.zeros((48, 56), np.uint8)
        pixels[(*box, 1 + 2 * (number % 2))] += 40_000
        mask[box] = 1 + number % 2
        form = {"photometric": "minisblack", "planarconfig": "contig"}
        tifffile.imwrite(photos / "images" / f"{number:02}.tif", pixels, **form)
        if kind == "masks":
            Image.fromarray(mask).save(photos / "masks" / f"{number:02}.png")
        named = {"id": number, "image_id": number, "category_id": 1 + number % 2}
        boxes.append(named | {"bbox": [left, top, 22, 20], "area": 440, "iscrowd": 0})
    images = [{"id": n, "file_name": f"{n:02}.tif", "height": 48, "width": 56} for n in range(24)]
    categories = [{"id": 1, "name": "one"}, {"id": 2, "name": "two"}]
    told = {"images": images, "annotations": boxes, "categories": categories}
    (photos / "boxes.json").write_text(json.dumps(told))
    masks = {"labels": "mask", "masks": {"classes": ["ground", "one", "two"]}}
    objects = {"objects": {"annotations": [{"file": "boxes.json", "images": "images"}]}}
    source = {"kind": kind} | (masks if kind == "masks" else objects)
    image = {"depth": "keep", "channels": "keep", "resize": "none"}
    prepare(photos, tmp_path / "datasets", image=image, source=source, **RULES)
    augment = {"vertical_flip": True, "quarter_turns": True, "scale": [0.7, 1.0]}
    dataset, seen = open_dataset("d", root=tmp_path / "datasets"), 0
    asked = {"batch_size": 4, "image_size": 64, "augment": augment, "last_batch": "partial"}
    features = [] if kind == "masks" else ["objects/bbox"]
    for batch in dataset.batches("train", features=features, **asked):
        for row, found in enumerate(batch.images):
            bright = found[:, :, [1, 3]].max((0, 1)).argmax()
            is_bright = found[:, :, 1 + 2 * bright] > 20_000
            if kind == "masks":
                wrong = (batch.labels[row] == 1 + bright) != is_bright
                assert wrong.sum() <= is_bright.sum() ** 0.5 * 4, "only pixels at an edge may differ"
            else:
                rows, columns = np.flatnonzero(is_bright.any(1)), np.flatnonzero(is_bright.any(0))
                around = [rows[0], columns[0], rows[-1] + 1, columns[-1] + 1]
                assert np.abs(batch.features["objects/bbox"].values[row, :4] * 64 - around).max() <= 1.5
            seen += 1
    assert seen == 12
    model = {"name": "small_unet" if kind == "masks" else "small_cnn"}
    size = {"image_size": 32 if kind == "masks" else 64, "global_batch_size": 4}
    learn = settings(model=model, data=size, run={"epochs": 8}, augment=augment)
    result = train_here(tmp_path, "d", learn)
    name, least = ("mean_iou", 0.6) if kind == "masks" else ("average_precision_50", 0.3)
    assert result["metrics"]["test"][name] >= least
    on_files = result["on_source_files"]
    assert on_files["num_files"] == on_files["same_pixels"] > 0
    rows = predicted(result["run_dir"], [photos / "images"], tmp_path / "rows.json")
    assert len(rows) == 24
    assert not any(row["reason"] for row in rows)
