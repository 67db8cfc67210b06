"""Figures of multi-label classification and of regression, against direct formulas over all examples."""

from __future__ import annotations

import numpy as np
import pytest

from shardmill.training.metrics.multi_label import MultiLabelTally
from shardmill.training.metrics.regression import RegressionTally

PROBABILITIES = np.array([[0.9, 0.8, 0.1], [0.6, 0.7, 0.2], [0.4, 0.1, 0.0], [0.7, 0.3, 0.4]], np.float32)


def test_several_labels() -> None:
    labels = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]], np.float32)
    predicted = np.array([[1, 0, 0], [1, 0, 0], [0, 0, 0], [1, 1, 0]], bool)
    tally = MultiLabelTally(3)
    for part in (slice(0, 3), slice(3, 4)):
        losses = np.array([0.5, 1.5, 0.0, 2.0], np.float32)[part]
        rows = {"losses": losses, "predicted": predicted[part], "probabilities": PROBABILITIES[part]}
        tally.add(labels[part], rows)
    result = tally.evaluation().to_result(["a", "b", "never"])
    found = result["per_class"]
    precisions = [row.pop("average_precision") for row in found.values()]
    assert precisions == pytest.approx([1 / 2 * 1 + 1 / 2 * 2 / 3, 1 / 2 * 1 / 2 + 1 / 2 * 2 / 3, 0])
    assert result["mean_average_precision"] == pytest.approx(sum(precisions) / 2)
    assert found["a"] == pytest.approx({"precision": 2 / 3, "recall": 1.0, "f1": 4 / 5, "support": 2})
    assert found["b"] == pytest.approx({"precision": 1.0, "recall": 1 / 2, "f1": 2 / 3, "support": 2})
    assert result["exact_match"] == 0.5
    assert result["macro_f1"] == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert result["micro_f1"] == pytest.approx(2 * 3 / (4 + 4))
    assert (result["loss"], result["num_examples"]) == (1.0, 4)


def test_numbers_far_from_zero() -> None:
    random = np.random.default_rng(1)
    labels = (1e6 + random.normal(size=(50, 2)) * [1.0, 5.0]).astype(np.float64)
    predicted = labels + random.normal(size=labels.shape) * 0.5
    tally = RegressionTally(2)
    for start in range(0, 50, 7):
        part = slice(start, start + 7)
        losses = np.full(len(labels[part]), 0.125, np.float32)
        tally.add(labels[part], {"losses": losses, "predicted": predicted[part]})
    result = tally.evaluation().to_result(["width", "height"])
    errors = predicted - labels
    for number, name in enumerate(("width", "height")):
        found = result["per_target"][name]
        assert found["absolute_error"] == pytest.approx(np.abs(errors[:, number]).mean())
        assert found["root_mean_square_error"] == pytest.approx(np.sqrt((errors[:, number] ** 2).mean()))
        r2 = 1 - (errors[:, number] ** 2).mean() / labels[:, number].var()
        assert found["r2"] == pytest.approx(r2, rel=1e-6)
    assert (result["loss"], result["num_examples"]) == (0.125, 50)


def test_a_target_that_never_changes_explains_nothing() -> None:
    tally = RegressionTally(1)
    tally.add(np.ones((4, 1)), {"losses": np.zeros(4, np.float32), "predicted": np.ones((4, 1))})
    assert tally.evaluation().figures()["r2"] == 0.0
