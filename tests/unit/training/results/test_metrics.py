"""Figures of an evaluation against numbers worked out by hand."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from training.results.confusion_picture import confusion_svg
from training.results.metrics import Evaluation, confusion_matrix, per_class


def test_confusion_matrix_counts_true_by_predicted() -> None:
    matrix = confusion_matrix(np.array([0, 0, 1, 2, 2]), np.array([0, 1, 1, 2, 0]), 3)
    assert matrix.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 1]]


def test_figures_of_each_class() -> None:
    matrix = np.array([[6, 2, 0], [1, 3, 0], [0, 0, 0]])
    evaluation = Evaluation(matrix, loss=0.5)
    assert evaluation.accuracy == pytest.approx(9 / 12)
    rows = per_class(matrix, ["a", "b", "never"])
    assert rows["a"] == pytest.approx({"precision": 6 / 7, "recall": 6 / 8, "f1": 12 / 15, "support": 8})
    assert rows["b"] == pytest.approx({"precision": 3 / 5, "recall": 3 / 4, "f1": 6 / 9, "support": 4})
    assert rows["never"] == {"precision": 0, "recall": 0, "f1": 0, "support": 0}
    assert evaluation.to_result(["a", "b", "never"])["num_examples"] == 12


@pytest.mark.parametrize("names", [["<&>", "caf\udce9\x00"], [f"class {i}" for i in range(60)]])
def test_the_picture_is_well_formed_whatever_the_names(names: list[str]) -> None:
    svg = confusion_svg(np.eye(len(names), dtype=np.int64) * 3, names, title="test <1>")
    tree = ET.fromstring(svg.encode("utf-8"))
    squares = list(tree.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(squares) == len(names) ** 2 + 1
