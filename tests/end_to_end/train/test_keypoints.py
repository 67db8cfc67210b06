"""Key points through the commands: prepare drawn shapes, train, evaluate, compare, predict."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from shardmill.infra.errors import ConfigError, DataError
from shardmill.training.augment.parameters import AugmentParameters
from shardmill.training.config import TrainConfig
from shardmill.training.reading.records.shapes import Views
from shardmill.training.results.predictions.comparison import compare
from shardmill.training.results.run_files.run_folder import open_run
from shardmill.training.tasks.keypoints import KeyPointsKind
from shardmill.training.tasks.settings import settings_for
from tests.samples.images.shape_pictures import HEIGHT, NAMES, WIDTH, draw_shapes, shapes_of
from tests.samples.training.trainer import settings, train_here

SMALL = settings(
    data={"image_size": 64, "global_batch_size": 8, "objects": "keypoints"},
    run={"epochs": 5},
    optimizer={"learning_rate": 0.003},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keypoints")
    draw_shapes(folder / "source", folder / "datasets", 60, bars=False, splits=(0.8, 0.0, 0.2))
    return folder


@pytest.fixture(scope="module")
def result(folder: Path) -> dict[str, Any]:
    return train_here(folder, "d", SMALL)


def test_most_points_are_found(result: dict[str, Any]) -> None:
    """0.9 and more was seen."""
    assert result["task"] == "keypoints"
    assert result["keypoints"] == list(NAMES)
    test = result["metrics"]["test"]
    assert test["correct_keypoints"] > 0.5
    page = Path(result["report"]).read_text()
    assert "key points found" in page
    assert "White points" in page
    rows = pq.read_table(result["predictions"]["test"])
    labels, found = KeyPointsKind().read([], rows)
    number = int(Path(rows["source_uri"][0].as_py()).stem)
    own = shapes_of(number)["points"] / [HEIGHT, WIDTH]
    np.testing.assert_allclose(labels[0, :-4].reshape(-1, 3)[:, :2], own, atol=1e-6)
    assert labels[0, :-4].reshape(-1, 3)[:, 2].tolist() == [2, 1, 2]
    assert KeyPointsKind().wrong(labels, found).mean() < 0.9
    same = compare(Path(result["predictions"]["test"]), Path(result["predictions"]["test"]))
    assert same.figures["correct_keypoints"].first == pytest.approx(test["correct_keypoints"])


@pytest.mark.slow
def test_files_get_the_points_of_the_evaluation_in_their_own_pixels(
    result: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    tf = pytest.importorskip("tensorflow")
    from shardmill.training.predict import predict

    run, source = open_run(result["run_dir"], folder / "runs"), folder / "source"
    predict(run, [source], tmp_path / "found.csv", "csv")
    with (tmp_path / "found.csv").open() as stream:
        rows = {Path(row["path"]).name: row for row in csv.DictReader(stream)}
    served = tf.saved_model.load(result["export_dir"]).signatures["serving_default"]
    kept = pq.read_table(result["predictions"]["test"]).to_pylist()
    names = [f"{name} {axis}" for name in NAMES for axis in ("y", "x")]
    for one in kept:
        row, sides = rows[one["source_uri"]], np.tile([HEIGHT, WIDTH], len(NAMES))
        found = np.array([float(row[name]) for name in names])
        np.testing.assert_allclose(found, np.array(one["predicted"]) * sides, atol=0.02)
        image = (source / one["source_uri"]).read_bytes()
        points = served(image_bytes=tf.constant([image]))["points"][0].numpy()
        np.testing.assert_allclose(points * sides, found, atol=1.0)
    predict(run, [source / "000.png"], tmp_path / "found.json", "json")
    assert [*json.loads((tmp_path / "found.json").read_text())["points"]] == names


def test_an_object_that_is_not_to_be_seen_has_no_points(folder: Path) -> None:
    from shardmill import open_dataset

    objects = KeyPointsKind().objects(open_dataset("d", folder / "datasets").version, "test")
    sides = np.full(2, HEIGHT), np.full(2, WIDTH)
    whole, corner = [0, 0, HEIGHT, WIDTH], [HEIGHT - 4, WIDTH - 4, 4, 4]
    for windows, seen in (([corner, corner], [False, False]), ([corner, whole], [False, True])):
        views = Views(AugmentParameters(np.array(windows, np.int32)), *sides)
        labels = objects.padded(objects.shown(np.array([0, 1]), views))
        assert labels.shape == (2, 3 * len(NAMES) + 4)
        assert labels.any(axis=1).tolist() == seen


def test_what_cannot_be_learned_is_refused_in_words(folder: Path, tmp_path: Path) -> None:
    from shardmill import open_dataset

    draw_shapes(tmp_path / "source", tmp_path / "root", 4)
    two = open_dataset("d", tmp_path / "root").version
    with pytest.raises(DataError, match="4 of 4 records of train of d@1 have no object or several"):
        KeyPointsKind().objects(two, "train")
    lone = open_dataset("d", folder / "datasets").version
    for given, words in (
        ({"data": {"fit": "crop"}}, "would cut objects off"),
        ({"augment": {"mixup": 0.2}}, "augment.mixup = 0.2 has no meaning for keypoints"),
        ({"run": {"best_metric": "average_precision"}}, "is no figure of keypoints"),
    ):
        asked = {**given, "data": {"objects": "keypoints", **given.get("data", {})}}
        with pytest.raises(ConfigError, match=words):
            settings_for(TrainConfig.model_validate(asked), lone)
