"""Losses, scores and places of key points, against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shardmill.infra.errors import DataError
from shardmill.training.reading.records import annotations
from shardmill.training.reading.records.annotations import LoneObjects, SplitObjects
from shardmill.training.reading.records.shapes import KeyPointsOfSplit
from shardmill.training.tasks.keypoints import KeyPointsTask
from tests.samples.datasets.published import coloured, publish

tf = pytest.importorskip("tensorflow")

from shardmill.training.models.spec import ModelSpec  # noqa: E402
from shardmill.training.tensorflow.models.point_finder import ExpectedPlaces  # noqa: E402
from shardmill.training.tensorflow.models.registry import build_model  # noqa: E402
from shardmill.training.tensorflow.operations import OPERATIONS  # noqa: E402


def test_losses_and_scores_count_annotated_points_alone() -> None:
    chance = np.random.default_rng(0)
    outputs, points = chance.random((3, 8)).astype(np.float32), chance.random((3, 4, 3)).astype(np.float32)
    points[..., 2] = [[2, 1, 0, 2], [0, 0, 1, 0], [0, 0, 0, 0]]
    labels = np.concatenate([points.reshape(3, -1), np.tile([0, 0, 1, 1], (3, 1))], 1).astype(np.float32)
    task = KeyPointsTask(OPERATIONS, 4)
    apart = np.hypot(*np.moveaxis(outputs.reshape(3, 4, 2) - points[..., :2], -1, 0))
    distances = [own[seen > 0] for own, seen in zip(apart, points[..., 2], strict=True)]
    scores, losses = task.scores(outputs, labels).numpy(), task.losses(outputs, labels).numpy()
    for row, own in enumerate(distances[:2]):
        assert scores[row] == pytest.approx(np.mean(own), rel=1e-5)
        assert losses[row] == pytest.approx(100 * np.mean(np.square(own)), rel=1e-5)
    assert scores[2] == losses[2] == 0
    assert task.labels.shape == labels.shape[1:]


def test_a_place_is_the_mean_of_the_cells_that_a_heat_map_weighs() -> None:
    maps = np.random.default_rng(1).normal(0, 2, (2, 3, 5, 4)).astype(np.float32)
    found = ExpectedPlaces()(maps).numpy().reshape(2, 4, 2)
    shares = np.exp(maps) / np.exp(maps).sum((1, 2), keepdims=True)
    y, x = (np.arange(3) + 0.5) / 3, (np.arange(5) + 0.5) / 5
    np.testing.assert_allclose(found[..., 0], np.einsum("bhwk,h->bk", shares, y), rtol=1e-5)
    np.testing.assert_allclose(found[..., 1], np.einsum("bhwk,w->bk", shares, x), rtol=1e-5)


def test_the_named_model_is_the_backbone() -> None:
    model = build_model(ModelSpec("small_cnn", 6, 64, output="points"))
    places = model(np.random.default_rng(2).integers(0, 256, (2, 64, 64, 3), np.uint8)).numpy()
    assert places.shape == (2, 6)
    assert ((places > 0.3) & (places < 0.7)).all(), "at the start all points are near the middle"


def test_points_that_nobody_annotated_are_nothing_to_learn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    version = publish(tmp_path, coloured({"train": {"a": 2}}, size=(8, 8)))
    numbers = np.arange(3)

    def load(*_: object) -> SplitObjects:
        points = KeyPointsOfSplit(np.zeros((2, 4, 2), np.float32), np.zeros((2, 4), np.int64), None)
        boxes, classes = np.zeros((2, 4), np.float32), np.zeros(2, np.int32)
        return SplitObjects(numbers, boxes, classes, np.zeros(2, np.bool_), (points,))

    monkeypatch.setattr(annotations, "load_objects", load)
    with pytest.raises(DataError, match=r"no object of train .* has an annotated key point"):
        LoneObjects.load(version, "train")
    assert len(LoneObjects.load(version, "validation").boxes) == 2
