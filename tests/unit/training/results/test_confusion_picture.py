"""The picture of a confusion matrix."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from training.results.confusion_picture import confusion_svg


@pytest.mark.parametrize("names", [["<&>", "caf\udce9\x00"], [f"class {i}" for i in range(60)]])
def test_the_picture_is_well_formed_whatever_the_names(names: list[str]) -> None:
    svg = confusion_svg(np.eye(len(names), dtype=np.int64) * 3, names, title="test <1>")
    tree = ET.fromstring(svg.encode("utf-8"))
    squares = list(tree.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(squares) == len(names) ** 2 + 1
