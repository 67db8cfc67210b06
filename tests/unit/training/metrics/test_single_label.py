"""Figures of a classifier against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from shardmill.training.metrics.confusion import confusion_matrix
from shardmill.training.metrics.single_label import Calibration, SingleLabelEvaluation, SingleLabelTally

MATRIX = np.array([[6, 2, 0], [1, 3, 0], [0, 0, 0]])
EVALUATION = SingleLabelEvaluation(np.diag(MATRIX), MATRIX.sum(1), MATRIX.sum(0), 0.5, 12, MATRIX)


def test_confusion_matrix_counts_true_by_predicted() -> None:
    matrix = confusion_matrix(np.array([0, 0, 1, 2, 2]), np.array([0, 1, 1, 2, 0]), 3)
    assert matrix.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 1]]


def test_figures_of_each_class() -> None:
    result = EVALUATION.to_result(["a", "b", "never"])
    rows = result["per_class"]
    assert rows["a"] == pytest.approx({"precision": 6 / 7, "recall": 6 / 8, "f1": 12 / 15, "support": 8})
    assert rows["b"] == pytest.approx({"precision": 3 / 5, "recall": 3 / 4, "f1": 6 / 9, "support": 4})
    assert rows["never"] == {"precision": 0, "recall": 0, "f1": 0, "support": 0}
    assert result["num_examples"] == 12


def test_means_leave_out_classes_without_examples() -> None:
    figures = EVALUATION.figures()
    assert figures == pytest.approx(
        {
            "loss": 0.5,
            "accuracy": 9 / 12,
            "balanced_accuracy": 3 / 4,
            "macro_f1": (12 / 15 + 6 / 9) / 2,
        }
    )


def rows_of(probabilities: list[list[float]]) -> dict[str, np.ndarray]:
    values = np.array(probabilities, np.float32)
    return {
        "losses": np.full(len(values), 0.25, np.float32),
        "predicted": values.argmax(axis=1),
        "probabilities": values,
    }


def test_a_tally_does_not_depend_on_how_batches_are_cut() -> None:
    random = np.random.default_rng(0)
    labels, probabilities = random.integers(0, 7, 40), random.dirichlet(np.ones(7), 40)
    whole, cut = SingleLabelTally(7), SingleLabelTally(7)
    whole.add(labels, rows_of(probabilities.tolist()))
    for start in range(0, 40, 9):
        part = slice(start, start + 9)
        cut.add(labels[part], rows_of(probabilities[part].tolist()))
    classes = [str(label) for label in range(7)]
    one, other = whole.evaluation().to_result(classes), cut.evaluation().to_result(classes)
    assert one.pop("calibration") == [pytest.approx(row) for row in other.pop("calibration")]
    assert one.pop("calibration_error") == pytest.approx(other.pop("calibration_error"))
    assert one == other
    in_top = (np.argsort(-probabilities, axis=1)[:, :5] == labels[:, None]).any(axis=1)
    assert one["top5_accuracy"] == pytest.approx(in_top.mean())


@pytest.mark.parametrize(("num_classes", "expected"), [(5, None), (6, 0)])
def test_top_five_counts_no_ties_and_needs_more_than_five_classes(
    num_classes: int, expected: int | None
) -> None:
    tally = SingleLabelTally(num_classes)
    tally.add(np.array([0, 1]), rows_of([[1 / num_classes] * num_classes] * 2))
    assert tally.evaluation().top_hits == expected


def test_calibration_error_weighs_the_bins_by_examples() -> None:
    # Two of confidence 0.95 (one right), one of 0.62 (right): |1 - 1.9| + |1 - 0.62|, over 3.
    found = Calibration().plus(np.array([0.95, 0.95, 0.62]), np.array([True, False, True]))
    assert found.error() == pytest.approx((0.9 + 0.38) / 3)
    low, high = found.to_result()
    assert low == pytest.approx(
        {"from": 9 / 15, "to": 10 / 15, "num_examples": 1, "accuracy": 1.0, "confidence": 0.62}
    )
    assert high["num_examples"] == 2
    assert Calibration().error() == 0.0


@pytest.mark.parametrize(
    ("confidence", "number"), [(0.0, 0), (1 / 15, 0), (0.0667, 1), (2 / 3, 9), (1.0, 14)]
)
def test_bins_include_their_upper_end(confidence: float, number: int) -> None:
    counts = Calibration().plus(np.array([confidence]), np.array([True])).counts
    assert counts.argmax() == number
    assert counts.sum() == 1
