"""Average precision, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from shardmill.training.metrics.multi_label import MultiLabelTally, PrecisionCounts, resampled


def counted(wanted: np.ndarray, probabilities: np.ndarray, parts: int = 1) -> np.ndarray:
    counts = PrecisionCounts(wanted.shape[1])
    for rows in np.array_split(np.arange(len(wanted)), parts):
        counts.add(wanted[rows], probabilities[rows])
    return counts.average_precision()


@pytest.mark.parametrize("parts", [1, 7])
@pytest.mark.parametrize("spread", [0.2, 3.0, 40.0])
def test_it_is_that_of_scikit_learn(parts: int, spread: float) -> None:
    random = np.random.default_rng(3)
    wanted = random.random((600, 4)) < [0.5, 0.1, 0.01, 0.9]
    logits = np.clip(spread * (random.normal(size=wanted.shape) + wanted), -80, 80).astype(np.float32)
    probabilities = 1 / (1 + np.exp(-logits))
    expected = [average_precision_score(wanted[:, c], probabilities[:, c]) for c in range(4)]
    assert counted(wanted, probabilities, parts) == pytest.approx(expected, abs=0.01)


def test_unknown_classes_count_for_nothing() -> None:
    random = np.random.default_rng(4)
    labels = (random.random((400, 3)) < 0.4).astype(np.float32)
    probabilities = (labels * 0.2 + 0.8 * random.random(labels.shape)).astype(np.float32)
    labels[random.random(labels.shape) < [0.5, 0.1, 1.0]] = np.nan
    known = ~np.isnan(labels)
    expected = [
        average_precision_score(labels[known[:, c], c], probabilities[known[:, c], c]) for c in range(2)
    ]
    assert counted(labels, probabilities).tolist() == [*(pytest.approx(one, abs=0.01) for one in expected), 0]
    rows = {"losses": np.zeros(400), "predicted": probabilities > 0.5, "probabilities": probabilities}
    tally = MultiLabelTally(3)
    tally.add(labels, rows)
    found, again = tally.evaluation(), resampled(labels, rows, 3)(np.ones(400, np.int64))
    assert found.support.tolist() == np.nansum(labels, axis=0).tolist()
    assert found.predicted.tolist() == ((probabilities > 0.5) & known).sum(axis=0).tolist()
    assert found.figures() == pytest.approx(again.figures())


@pytest.mark.parametrize(
    ("wanted", "probabilities", "expected"),
    [
        ([1, 0, 1, 0], [0.9, 0.1, 0.8, 0.2], 1.0),
        ([0, 1], [0.9, 0.1], 0.5),
        ([1, 0, 1], [0.5, 0.5, 0.5], 2 / 3),  # equal probabilities have one threshold
        ([1, 0], [1.0, 0.0], 1.0),
        ([0, 0], [0.4, 0.6], 0.0),
        ([], [], 0.0),
    ],
)
def test_small_cases(wanted: list[int], probabilities: list[float], expected: float) -> None:
    found = counted(np.array(wanted, bool).reshape(-1, 1), np.array(probabilities, np.float32).reshape(-1, 1))
    assert found.tolist() == [pytest.approx(expected)]
