"""Figures of resamples are those of the records that they draw."""

from __future__ import annotations

import numpy as np
import pytest

from training.results.metrics.multi_label import MultiLabelTally
from training.results.predictions.resampling import resampled_figures

CLASSES = 5


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
    figures = resampled_figures("multi-label", labels, rows, CLASSES).of(np.bincount(drawn, minlength=200))
    tally = MultiLabelTally(CLASSES)
    tally.add(labels[drawn], {name: values[drawn] for name, values in rows.items()})
    wanted = tally.evaluation().figures()
    assert figures == pytest.approx({name: wanted[name] for name in figures}, rel=1e-5)
