"""Pictures of results."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from training.results.metrics.calibration import Calibration
from training.results.pictures.confusion import confusion_svg
from training.results.pictures.reliability import reliability_svg


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
