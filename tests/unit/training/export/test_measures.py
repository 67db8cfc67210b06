"""Comparison of exported forms with the model, by task."""

from __future__ import annotations

import numpy as np
import pytest

from shardmill.training.tasks.multi_label import LabelsMeasure
from shardmill.training.tasks.regression import NumbersMeasure
from shardmill.training.tasks.segmentation import MaskMeasure
from shardmill.training.tasks.single_label import ClassMeasure
from shardmill.training.tasks.task import FormMeasure

SHARES = np.array([[0.9, 0.1], [0.4, 0.6], [0.5, 0.2]])


@pytest.mark.parametrize(
    ("measure", "values", "labels", "scores"),
    [
        (ClassMeasure(), SHARES, [0, 0, 0], [1, 0, 1]),
        (LabelsMeasure(), SHARES, [[1, 0], [1, 1], [0, 0]], [1, 0, 1]),
        (NumbersMeasure((2.0, 4.0)), [[1.0, 8.0], [0.0, 0.0]], [[1.0, 8.0], [2.0, 4.0]], [1, 0]),
    ],
)
def test_scores(measure: FormMeasure, values: object, labels: object, scores: list[float]) -> None:
    assert measure.scores(np.array(values), np.array(labels)).tolist() == scores


@pytest.mark.parametrize(
    ("measure", "others", "agree", "largest"),
    [
        (ClassMeasure(), [[0.6, 0.4], [0.6, 0.4], [0.5, 0.2]], [True, False, True], 0.3),
        (LabelsMeasure(), [[0.9, 0.6], [0.3, 0.9], [0.5, 0.2]], [False, True, True], 0.5),
        (NumbersMeasure((1.0, 10.0)), [[0.9, 0.9], [0.4, 2.6], [0.45, 0.2]], [True, False, True], 0.2),
    ],
)
def test_agreement_and_differences(
    measure: FormMeasure, others: object, agree: list[bool], largest: float
) -> None:
    assert measure.agree(SHARES, np.array(others)).tolist() == agree
    assert measure.differences(SHARES, np.array(others)).max() == pytest.approx(largest)


def test_masks_are_measured_by_the_pixels_that_have_a_class() -> None:
    measure = MaskMeasure(255)
    labels = np.array([[[0, 1], [255, 1]], [[255, 255], [255, 255]]], np.uint8)
    values = np.zeros((2, 2, 2, 2))
    values[..., 0] = 0.75
    values[..., 1] = 0.25
    others = values.copy()
    others[0, 0, 1] = [0.4, 0.6]
    assert measure.scores(values, labels) == pytest.approx([1 / 3, 1.0])
    assert measure.scores(others, labels) == pytest.approx([2 / 3, 1.0])
    assert measure.agree(values, others).tolist() == [False, True]
    assert measure.differences(values, others).max() == pytest.approx(0.35)
