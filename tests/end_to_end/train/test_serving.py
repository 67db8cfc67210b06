"""A model of padded photographs serves as it was trained: ``predict``, its exports, and runs of old."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from shardmill.infra.preparation import Preparation
from shardmill.training.export.model_input import ModelInput, read_model_input
from shardmill.training.predict import predict
from shardmill.training.predicting.inputs import input_of_run
from shardmill.training.results.run_files.run_folder import open_run
from tests.samples.images.photos import make_photos
from tests.samples.preparing.prepared import run as prepare
from tests.samples.training.trainer import settings, train_here

IMAGE = {"resize": "pad", "height": 24, "width": 60, "background": "#ff8000"}
CLOSE = 0.06  # of a probability: what a graph may add to JPEG records


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serving")
    make_photos(folder / "photos", {"cat": 24, "dog": 24}, height=64, width=40)
    rules = {"splits": {"train": 0.5, "validation": 0.0, "test": 0.5}, "groups": {"near_duplicates": False}}
    prepare(folder / "photos", folder / "datasets", image=IMAGE, **rules)
    return folder


@pytest.fixture(scope="module")
def result(folder: Path) -> dict[str, Any]:
    forms = {"formats": ["litert"], "max_accuracy_loss": 1.0}
    return train_here(folder, "d", settings(run={"epochs": 1}, export=forms))


def of_records(result: dict[str, Any]) -> dict[str, list[float]]:
    """The probabilities that evaluation gave the records of the test split, by the paths of their files."""
    rows = pq.read_table(result["predictions"]["test"]).to_pylist()
    return {row["source_uri"]: row["probabilities"] for row in rows}


def test_predict_gives_what_evaluation_gave(folder: Path, result: dict[str, Any], tmp_path: Path) -> None:
    run = open_run(result["run_dir"], folder / "runs")
    wanted = of_records(result)
    paths = [folder / "photos" / path for path in wanted]
    predict(run, paths, tmp_path / "found.json", "json")
    rows = [json.loads(line) for line in (tmp_path / "found.json").read_text().splitlines()]
    found = [list(row["probabilities"].values()) for row in rows]
    assert np.array(found) == pytest.approx(np.array(list(wanted.values())), abs=1e-5)
    # A run of an earlier release keeps no such file: its dataset version tells.
    (run.path / "model-input.json").rename(tmp_path / "model-input.json")
    try:
        predict(run, paths, tmp_path / "again.json", "json", root=folder / "datasets")
    finally:
        (tmp_path / "model-input.json").rename(run.path / "model-input.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "found.json").read_bytes()


def test_exports_give_what_evaluation_gave(folder: Path, result: dict[str, Any]) -> None:
    tf = pytest.importorskip("tensorflow")
    from shardmill.training.tensorflow.export.litert import LiteRTModel

    run_dir, wanted = Path(result["run_dir"]), of_records(result)
    files = [(folder / "photos" / path).read_bytes() for path in wanted]
    served = tf.saved_model.load(result["export_dir"])
    by_files = served.signatures["serving_default"](image_bytes=tf.constant(files))["probabilities"].numpy()
    probabilities = np.array(list(wanted.values()))
    assert np.abs(by_files - probabilities).max() < CLOSE
    pixels = np.stack([read_model_input(run_dir).see(data).pixels for data in files])
    by_pixels = served.signatures["pixels"](images=tf.constant(pixels))["probabilities"].numpy()
    assert by_pixels == pytest.approx(probabilities, abs=1e-5)
    lite = LiteRTModel((run_dir / "model.tflite").read_bytes()).values(pixels)
    assert lite == pytest.approx(probabilities, abs=1e-4)


def test_the_result_says_how_the_export_does_on_source_files(result: dict[str, Any]) -> None:
    found = result["on_source_files"]
    number = len(of_records(result))
    assert (found["split"], found["num_files"], found["same_pixels"]) == ("test", number, number)
    assert (found["not_read"], found["refused"]) == ({}, {})
    assert found["agreement"] > 0.9, "pictures of noise, and a model that hardly knows them"
    assert found["max_difference"] < CLOSE


def test_an_export_that_takes_files_alone_predicts_too(
    folder: Path, result: dict[str, Any], tmp_path: Path
) -> None:
    """As earlier releases wrote them: without a signature for pixels, and without a file beside them."""
    tf = pytest.importorskip("tensorflow")
    old = tmp_path / Path(result["run_dir"]).name
    shutil.copytree(result["run_dir"], old, ignore=shutil.ignore_patterns("export", "model*", "check*"))

    def mean(data: Any) -> Any:
        return tf.reduce_mean(tf.cast(tf.io.decode_png(data, channels=3), tf.float32), [0, 1])[:2] / 255

    module = tf.Module()
    module.served = tf.function(
        lambda image_bytes: {"probabilities": tf.map_fn(mean, image_bytes, fn_output_signature=tf.float32)},
        input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")],
        autograph=False,
    )
    tf.saved_model.save(module, str(old / "export"), signatures={"serving_default": module.served})
    run, picture = open_run(str(old), tmp_path), folder / "photos" / next(iter(of_records(result)))
    for root, how in ((folder / "datasets", Preparation.of(IMAGE)), (tmp_path, Preparation())):
        given = input_of_run(run, root)
        assert given == ModelInput(preparation=how, image_size=16)
        predict(run, [picture], tmp_path / "found.json", "json", root=root)
        (row,) = map(json.loads, (tmp_path / "found.json").read_text().splitlines())
        wanted = given.see(picture.read_bytes()).pixels.mean((0, 1))[:2] / 255
        assert list(row["probabilities"].values()) == pytest.approx(wanted, abs=1e-5)
