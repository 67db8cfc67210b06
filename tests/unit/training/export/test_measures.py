"""How forms of a model are compared with the model, by task."""

from __future__ import annotations

import numpy as np
import pytest

from training.export.measures import ClassMeasure, FormMeasure, LabelsMeasure, NumbersMeasure

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
