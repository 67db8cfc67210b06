"""The paired bootstrap, on files of predictions made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import DataError
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.reading import load_table
from shardmill.training.results.predictions.comparison import Comparison, compare
from shardmill.training.results.predictions.file import PredictionsWriter
from shardmill.training.tasks.detection import DetectionKind
from shardmill.training.tasks.kind import TaskKind
from shardmill.training.tasks.segmentation import SegmentationKind
from tests.samples.datasets.published import coloured, publish

NUM = 40


class Runs:
    """Predictions of imaginary runs on one dataset."""

    def __init__(self, folder: Path, counts: dict[str, int]) -> None:
        publish(folder / "datasets", coloured({"test": counts}), name="set")
        self.folder = folder
        self.version = Catalog(folder / "datasets").open("set")
        self.table = load_table(self.version, "test")

    def predict(
        self, name: str, right: np.ndarray, rows: np.ndarray | None = None, scale: float = 1.0
    ) -> Path:
        """Write predictions that are right where told; returns the path of the file."""
        rows = np.arange(len(self.table)) if rows is None else rows
        labels = self.table.label[rows]
        num_classes = len(self.version.manifest.classes)
        predicted = np.where(right[rows], labels, (labels + 1) % num_classes)
        probabilities = np.where(np.eye(num_classes)[predicted] > 0, 0.8, 0.2).astype(np.float32)
        own = np.take_along_axis(probabilities, labels[:, None], axis=1)[:, 0]
        (self.folder / name).mkdir()
        with PredictionsWriter(Storage.at(self.folder / name), self.version, self.table) as writer:
            found = {"losses": -scale * np.log(own), "predicted": predicted, "probabilities": probabilities}
            writer.add(rows, labels, found)
        return self.folder / name / "predictions-test.parquet"


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path, {"a": NUM // 2, "b": NUM // 2})


def first(number: int) -> np.ndarray:
    return np.arange(NUM) < number


def test_a_much_better_run_is_found_better(runs: Runs) -> None:
    found = compare(runs.predict("one", first(20)), runs.predict("other", first(36)))
    accuracy, loss = found.figures["accuracy"], found.figures["loss"]
    assert (found.num_examples, found.only_first, found.only_second) == (NUM, 0, 16)
    assert (accuracy.first, accuracy.second) == (0.5, 0.9)
    # The difference is a mean of 16 ones and 24 zeros: deviation sqrt(0.4 * 0.6 / 40) = 0.077.
    assert accuracy.low == pytest.approx(0.4 - 1.96 * 0.0775, abs=0.03)
    assert accuracy.high == pytest.approx(0.4 + 1.96 * 0.0775, abs=0.03)
    assert accuracy.share_above > 0.99
    assert loss.high < 0
    assert set(found.to_json()["figures"]) == {"accuracy", "balanced_accuracy", "macro_f1", "loss"}


@pytest.mark.parametrize("scale", [np.nan, np.inf])
def test_a_model_that_diverged_is_compared_with_none(runs: Runs, scale: float) -> None:
    """Its classes are those at the largest of NaN, and may be the right ones."""
    sound, diverged = runs.predict("one", first(20)), runs.predict("other", first(36), scale=scale)
    for pair in ((sound, diverged), (diverged, sound)):
        with pytest.raises(
            DataError, match=r"other/predictions-test.parquet: the losses of 40 records are not finite"
        ):
            compare(*pair)


def test_the_same_predictions_do_not_differ(runs: Runs) -> None:
    found = compare(runs.predict("one", first(30)), runs.predict("other", first(30)))
    assert {(each.low, each.high) for each in found.figures.values()} == {(0.0, 0.0)}


def test_the_interval_is_of_pairs_not_of_two_samples(runs: Runs) -> None:
    """Two runs that fail on the same records differ less than two that fail on others."""

    def width(found: Comparison) -> float:
        return found.figures["accuracy"].high - found.figures["accuracy"].low

    one = runs.predict("one", first(20))
    alike = compare(one, runs.predict("alike", first(21)))
    other = compare(one, runs.predict("other", ~first(19)))
    assert width(alike) < width(other) / 3


def test_a_comparison_is_the_same_each_time(runs: Runs) -> None:
    one, other = runs.predict("one", first(20)), runs.predict("other", first(25))
    assert compare(one, other) == compare(one, other)


def test_other_records_are_refused(runs: Runs, tmp_path: Path) -> None:
    one = runs.predict("one", first(20))
    part = runs.predict("part", first(20), np.arange(30))
    with pytest.raises(DataError, match="different records: 40 and 30, 30 of them the same"):
        compare(one, part)
    (tmp_path / "more").mkdir()
    others = Runs(tmp_path / "more", {"a": 1, "b": 1, "c": 1})
    with pytest.raises(DataError, match="different classes: only the second has c"):
        compare(one, others.predict("others", np.zeros(NUM, bool), np.array([0, 1])))


def found_boxes(count: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return labels and predictions of one image with so many objects."""
    boxes, classes = np.zeros((1, count, 4), np.float32), np.zeros((1, count), np.int32)
    labels = {"boxes": boxes, "classes": classes, "crowds": np.zeros((1, count), bool)}
    scores = np.ones((1, count), np.float32)
    return labels, {"losses": scores[:, 0], "boxes": boxes, "classes": classes, "scores": scores}


def shown_mask(size: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return labels and predictions of one image of this size."""
    mask = np.zeros((1, size, size), np.uint8)
    return mask, {"losses": np.ones(1, np.float32), "predicted": mask}


def written(runs: Runs, kind: TaskKind, predictions: list[tuple[Any, Any]]) -> list[Path]:
    """Write a file of predictions of one record for each run."""
    paths = []
    for number, (labels, rows) in enumerate(predictions):
        folder, name = Storage.at(runs.folder), f"{kind.name}-{number}.parquet"
        with PredictionsWriter(folder, runs.version, runs.table, name, kind) as writer:
            writer.add(np.array([0]), labels, rows)
        paths.append(runs.folder / name)
    return paths


@pytest.mark.parametrize(
    ("kind", "predictions", "words"),
    [
        (DetectionKind(), [found_boxes(1), found_boxes(3)], "1 of 1 records have another label"),
        (SegmentationKind(), [shown_mask(8), shown_mask(16)], "masks of 8 pixels, the second of 16"),
    ],
)
def test_other_labels_of_places_are_refused(
    runs: Runs, kind: TaskKind, predictions: list[tuple[Any, Any]], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        compare(*written(runs, kind, predictions))


def test_masks_are_compared_by_their_pixels(runs: Runs) -> None:
    label, right = shown_mask(8)
    half = right["predicted"].copy()
    half[:, :4] = 1
    worse = {"losses": right["losses"] * 2, "predicted": half}
    found = compare(*written(runs, SegmentationKind(), [(label, worse), (label, right)]))
    assert found.figures["pixel_accuracy"].first == 0.5
    assert found.figures["mean_iou"].first == 0.25, (
        "class 1 was taken for half of the pixels, and never right"
    )
    assert found.figures["mean_iou"].second == found.figures["pixel_accuracy"].low + 0.5 == 1.0
    assert (found.only_first, found.only_second) == (0, 1)


def test_boxes_are_compared_by_average_precision(runs: Runs) -> None:
    labels, right = found_boxes(2)
    labels["boxes"][:] = right["boxes"][:] = [[[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]]]
    worse = right | {"boxes": right["boxes"] + np.float32([0, 0, 0, 0.4])}
    found = compare(*written(runs, DetectionKind(), [(labels, worse), (labels, right)]))
    assert found.figures["average_precision"].second == 1.0
    assert found.figures["average_precision_50"].first == 1.0
    assert 0.1 < found.figures["average_precision"].first < 0.3
    assert list(found.figures) == ["average_precision", "average_precision_50", "average_recall", "loss"]
