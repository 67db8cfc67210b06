"""Average precision and recall of boxes, against values that pycocotools 2.0.11 gave for the same scenes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardmill.training.metrics.box_matching import OVERLAPS, match_boxes
from shardmill.training.metrics.detection import DetectionTally, precision_and_recall

MOST, FOUND = 6, 12


def scenes(seed: int, images: int = 40, classes: int = 4) -> tuple[dict[str, Any], dict[str, Any]]:
    """Random objects, and boxes near most of them: labels and predictions of a batch."""
    chance = np.random.default_rng(seed)
    labels = {
        "boxes": np.zeros((images, MOST, 4), np.float32),
        "classes": np.full((images, MOST), -1, np.int32),
        "crowds": np.zeros((images, MOST), np.bool_),
    }
    rows = {
        "losses": chance.random(images).astype(np.float32),
        "boxes": np.zeros((images, FOUND, 4), np.float32),
        "scores": np.zeros((images, FOUND), np.float32),
        "classes": np.full((images, FOUND), -1, np.int32),
    }
    for image in range(images):
        count = int(chance.integers(0, MOST + 1))
        middles, sides = chance.uniform(0.2, 0.8, (count, 2)), chance.uniform(0.15, 0.35, (count, 2))
        boxes = np.concatenate([middles - sides / 2, middles + sides / 2], axis=1)
        kinds = chance.integers(0, classes - 1, count)  # the last class has no objects
        labels["boxes"][image, :count], labels["classes"][image, :count] = boxes, kinds
        labels["crowds"][image, :count] = chance.random(count) < 0.15
        near = chance.integers(0, 3, count).sum() if count else 0
        picks = chance.integers(0, max(count, 1), min(int(near) + 2, FOUND))
        for number, pick in enumerate(picks.tolist()):
            shift = chance.normal(0, 0.02, 4)
            box = (boxes[pick] if count else np.array([0.1, 0.1, 0.4, 0.4])) + shift
            rows["boxes"][image, number] = box
            right = count and chance.random() < 0.8
            rows["classes"][image, number] = kinds[pick] if right else chance.integers(0, classes)
        rows["scores"][image, : len(picks)] = np.sort(chance.random(len(picks)).astype(np.float32))[::-1]
    return labels, rows


# Seed: average precision, average precision at 0.5, average recall at 100 boxes.
KNOWN = {
    1: (0.29153112020230515, 0.5304831580377604, 0.4635123957704603),
    2: (0.28880456331887283, 0.5087238764633781, 0.5070370370370371),
    3: (0.3227793590949349, 0.5819989078183566, 0.4786390692640693),
    4: (0.23953847105381412, 0.4571555605554667, 0.4179180390311667),
    5: (0.32668194087112046, 0.5795264372788284, 0.49579558652729383),
}


@pytest.mark.parametrize("seed", KNOWN)
def test_figures_are_those_of_pycocotools(seed: int) -> None:
    labels, rows = scenes(seed)
    tally = DetectionTally(4)
    for start in range(0, 40, 7):
        part = slice(start, start + 7)
        tally.add(*({name: value[part] for name, value in values.items()} for values in (labels, rows)))
    evaluation = tally.evaluation()
    figures = evaluation.figures()
    found = [figures[name] for name in ("average_precision", "average_precision_50", "average_recall")]
    np.testing.assert_allclose(found, KNOWN[seed], atol=1e-9)
    assert evaluation.num_examples == 40
    assert figures["loss"] == pytest.approx(float(rows["losses"].mean()))
    assert evaluation.support[3] == 0
    assert evaluation.to_result(["a", "b", "c", "d"])["per_class"]["d"]["average_precision"] == 0


WHOLE = [0.0, 0.0, 1.0, 1.0]
HALF = [0.0, 0.0, 0.5, 1.0]
CORNER = [0.0, 0.0, 0.1, 0.1]
CASES = {
    # name: (found, wanted, crowds, hits at 0.5, ignored at 0.5)
    "exact": ([WHOLE], [WHOLE], [False], [True], [False]),
    "half of it": ([HALF], [WHOLE], [False], [True], [False]),
    "elsewhere": ([[0.6, 0.6, 0.9, 0.9]], [CORNER], [False], [False], [False]),
    "an object is taken once, by the surest": (
        [HALF, WHOLE],
        [WHOLE],
        [False],
        [True, False],
        [False, False],
    ),
    "the second takes what is free": (
        [WHOLE, HALF],
        [WHOLE, HALF],
        [False, False],
        [True, True],
        [False, False],
    ),
    "in a crowd": ([CORNER, CORNER], [WHOLE], [True], [False, False], [True, True]),
    "an object goes before its crowd": ([WHOLE], [WHOLE, WHOLE], [True, False], [True], [False]),
    "no objects": ([WHOLE], [], [], [False], [False]),
    "no boxes": ([], [WHOLE], [False], [], []),
}


@pytest.mark.parametrize("name", CASES)
def test_boxes_are_matched(name: str) -> None:
    found, wanted, crowds, hits, ignored = CASES[name]
    boxes = (np.array(part, np.float32).reshape(-1, 4) for part in (found, wanted))
    right, left_out = match_boxes(*boxes, np.array(crowds, np.bool_))
    assert right.shape == left_out.shape == (len(found), len(OVERLAPS))
    assert right[:, 0].tolist() == hits
    assert left_out[:, 0].tolist() == ignored


@pytest.mark.parametrize(
    ("hits", "support", "precision", "recall"),
    [
        ([True, True], 2, 1.0, 1.0),
        ([True, False], 2, 51 / 101, 0.5),
        ([False, True], 1, 0.5, 1.0),
        ([True, False, True], 2, (51 + 50 * 2 / 3) / 101, 1.0),
        ([], 3, 0.0, 0.0),
        ([False], 1, 0.0, 0.0),
    ],
)
def test_precision_is_the_mean_over_levels_of_recall(
    hits: list[bool], support: int, precision: float, recall: float
) -> None:
    found = precision_and_recall(np.array(hits, np.bool_), support)
    assert found == (pytest.approx(precision), pytest.approx(recall))


def test_a_split_without_objects_has_figures() -> None:
    labels, rows = scenes(1, images=3)
    labels["classes"][:] = -1
    tally = DetectionTally(4)
    tally.add(labels, rows)
    assert tally.evaluation().figures()["average_precision"] == 0
