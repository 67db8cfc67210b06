"""Pictures of results."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from shardmill.training.metrics.single_label import Calibration
from shardmill.training.results.pictures.classification import confusion_svg, reliability_svg
from shardmill.training.results.pictures.scatter import scatter_svg


@pytest.mark.parametrize("names", [["<&>", "caf\udce9\x00"], [f"class {i}" for i in range(60)]])
def test_the_picture_is_well_formed_whatever_the_names(names: list[str]) -> None:
    svg = confusion_svg(np.eye(len(names), dtype=np.int64) * 3, names, title="test <1>")
    tree = ET.fromstring(svg.encode("utf-8"))
    squares = list(tree.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(squares) == len(names) ** 2 + 1


@pytest.mark.parametrize("num_bins", [0, 1, 15])
def test_the_reliability_picture_has_three_bars_a_bin(num_bins: int) -> None:
    confidence = (np.arange(num_bins) + 0.5) / 15
    found = Calibration().plus(confidence, np.ones(num_bins, bool))
    svg = reliability_svg(found.to_result(), found.error(), title="<test>")
    tree = ET.fromstring(svg)
    assert len(list(tree.iter("{http://www.w3.org/2000/svg}rect"))) == 2 + 3 * num_bins
    assert f"calibration error {found.error():.3f}" in svg


@pytest.mark.parametrize(
    ("wanted", "predicted", "points"),
    [
        ([1.0, 2.0, 3.0], [1.5, 2.0, 2.0], 3),
        ([4.0, 4.0], [4.0, 4.0], 2),  # one value has no range
        ([1.0, np.nan, 2.0], [1.0, 1.0, np.inf], 1),
        ([1e30, -1e30], [0.0, 1.0], 2),
        ([], [], 0),
    ],
)
def test_each_example_is_a_point_in_both_plots(
    wanted: list[float], predicted: list[float], points: int
) -> None:
    svg = scatter_svg(np.array(wanted), np.array(predicted), "price <caf\udce9\x00> " + "long " * 30)
    tree = ET.fromstring(svg.encode("utf-8"))
    circles = list(tree.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == 2 * points
    assert all(30 <= float(one.attrib[side]) <= 700 for one in circles for side in ("cx", "cy"))


def test_exact_predictions_lie_on_the_line() -> None:
    values = np.linspace(-3, 9, 7)
    tree = ET.fromstring(scatter_svg(values, values, "x"))
    circles = list(tree.iter("{http://www.w3.org/2000/svg}circle"))
    heights = [float(one.attrib["cy"]) for one in circles]
    assert len(set(heights[7:])) == 1, "no residuals"
    places = np.array([(float(one.attrib["cx"]), float(one.attrib["cy"])) for one in circles[:7]])
    assert np.allclose(np.diff(places.sum(axis=1)), 0, atol=0.11), "the diagonal of a square"
