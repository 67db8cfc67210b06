"""Figures of resamples are those of the records that they draw."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, recall_score

from shardmill.training.metrics.detection import DetectionTally
from shardmill.training.metrics.multi_label import MultiLabelTally
from shardmill.training.metrics.segmentation import SegmentationTally
from shardmill.training.tasks.registry import KINDS

CLASSES = 5


@pytest.mark.parametrize("seed", range(4))
def test_figures_of_one_class_are_those_of_the_drawn_records(seed: int) -> None:
    chance = np.random.default_rng(seed)
    labels = chance.choice(CLASSES, 80, p=[0.6, 0.3, 0.08, 0.02, 0.0])
    predicted = np.where(chance.random(80) < 0.6, labels, chance.integers(0, CLASSES, 80))
    rows = {"losses": chance.random(80).astype(np.float32), "predicted": predicted}
    drawn = chance.integers(0, 80, 80)
    figures = (
        KINDS["single-label"].resampled(labels, rows, CLASSES)(np.bincount(drawn, minlength=80)).figures()
    )
    pair, present = (labels[drawn], predicted[drawn]), np.unique(labels[drawn])
    assert figures == pytest.approx(
        {
            "accuracy": accuracy_score(*pair),
            "balanced_accuracy": recall_score(*pair, labels=present, average="macro"),
            "macro_f1": f1_score(*pair, labels=present, average="macro"),
            "loss": rows["losses"][drawn].astype(np.float64).mean(),
        }
    )


@pytest.mark.parametrize("seed", range(4))
def test_figures_of_several_labels_are_those_of_the_drawn_records(seed: int) -> None:
    chance = np.random.default_rng(seed)
    shares = np.array([0.0, 0.02, 0.2, 0.5, 1.0])  # classes that no record, few and all records have
    labels = (chance.random((200, CLASSES)) < shares).astype(np.float32)
    guessed = chance.normal(labels - 0.5, 0.8)
    probabilities = np.round(1 / (1 + np.exp(-4 * guessed)), 2).astype(np.float32)  # many are equal
    rows = {
        "losses": chance.random(200).astype(np.float32),
        "predicted": probabilities > 0.5,
        "probabilities": probabilities,
    }
    drawn = chance.integers(0, 200, 200)
    figures = (
        KINDS["multi-label"].resampled(labels, rows, CLASSES)(np.bincount(drawn, minlength=200)).figures()
    )
    tally = MultiLabelTally(CLASSES)
    tally.add(labels[drawn], {name: values[drawn] for name, values in rows.items()})
    wanted = tally.evaluation().figures()
    assert figures == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_figures_of_masks_are_those_of_the_drawn_records(seed: int) -> None:
    chance = np.random.default_rng(seed)
    labels = chance.choice(np.array([0, 1, 2, 255], np.uint8), (60, 6, 6))
    predicted = np.where(chance.random(labels.shape) < 0.6, labels, chance.integers(0, 3, labels.shape))
    predicted = np.where(predicted == 255, 0, predicted).astype(np.uint8)
    rows = {"losses": chance.random(60).astype(np.float32), "predicted": predicted}
    drawn = chance.integers(0, 60, 60)
    _, summary = KINDS["segmentation"].summarized(labels, rows, CLASSES)
    figures = (
        KINDS["segmentation"].resampled(None, summary, CLASSES)(np.bincount(drawn, minlength=60)).figures()
    )
    tally = SegmentationTally(CLASSES)
    tally.add(labels[drawn], {name: values[drawn] for name, values in rows.items()})
    assert figures == pytest.approx(tally.evaluation().figures(), rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_figures_of_boxes_are_those_of_the_drawn_records(seed: int) -> None:
    """Crowds, records without objects, boxes near objects and elsewhere, classes that nobody has."""
    chance = np.random.default_rng(seed)
    count, most, found = 40, 4, 7
    corner, size = chance.random((count, most, 2)) * 0.6, 0.1 + chance.random((count, most, 2)) * 0.3
    labels = {
        "boxes": np.concatenate([corner, corner + size], axis=2).astype(np.float32),
        "classes": chance.integers(-1, 3, (count, most)).astype(np.int32),
        "crowds": chance.random((count, most)) < 0.2,
    }
    near = np.repeat(labels["boxes"], 2, axis=1)[:, :found]
    rows = {
        "losses": chance.random(count).astype(np.float32),
        "boxes": (near + chance.normal(0, 0.02, near.shape)).astype(np.float32),
        "classes": np.repeat(labels["classes"], 2, axis=1)[:, :found],
        "scores": chance.random((count, found)).astype(np.float32),
    }
    drawn = chance.integers(0, count, count)
    _, summary = KINDS["detection"].summarized(labels, rows, CLASSES)
    times = np.bincount(drawn, minlength=count)
    figures = KINDS["detection"].resampled(None, summary, CLASSES)(times).figures()
    tally = DetectionTally(CLASSES)
    tally.add(*({name: values[drawn] for name, values in part.items()} for part in (labels, rows)))
    assert 0.05 < figures["average_precision"] < 0.95
    assert figures == pytest.approx(tally.evaluation().figures(), rel=1e-6)
