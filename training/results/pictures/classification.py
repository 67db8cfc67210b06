"""Pictures of the classes that a model gives: a confusion matrix, a reliability diagram. SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra.html.charts import exact_line, label_of, picture_svg, plot_area

_SIDE = 300  # side of the plot (pixels)
_LEFT, _TOP, _COUNTS = 50, 34, 46  # margins, and the height of the bars of counts


def class_pictures(split: str, figures: Mapping[str, Any], classes: Sequence[str]) -> dict[str, str]:
    """Draw ``confusion`` and ``reliability`` of a split, as far as its figures in a result have them."""
    title = f"{split}: accuracy {figures.get('accuracy', 0.0):.1%}"
    drawn = {}
    if "confusion_matrix" in figures:
        drawn["confusion"] = confusion_svg(
            np.array(figures["confusion_matrix"], np.int64), list(classes), title
        )
    if "calibration" in figures:
        drawn["reliability"] = reliability_svg(figures["calibration"], figures["calibration_error"], title)
    return drawn


def reliability_svg(bins: Sequence[Mapping[str, float]], error: float, title: str) -> str:
    """Draw the accuracy of predictions by their confidence, and below how many there are (Guo et al. 2017).

    Args:
        bins: the bins that have examples, as ``Calibration.to_result`` gives them.
        error: the expected calibration error.
        title: a line above.
    """
    width, height = _LEFT + _SIDE + 20, _TOP + _SIDE + _COUNTS + 64
    bottom = _TOP + _SIDE
    most = max((each["num_examples"] for each in bins), default=1)
    parts = [plot_area(_LEFT, _TOP, _SIDE)]
    for each in bins:
        parts += _bar(each, bottom, most)
    parts.append(exact_line(f"M{_LEFT} {bottom} L{_LEFT + _SIDE} {_TOP}"))
    for tick in (0.0, 0.5, 1.0):
        x, y = _LEFT + tick * _SIDE, bottom - tick * _SIDE
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{tick:.0%}</text>')
        parts.append(f'<text x="{x}" y="{height - 44}" text-anchor="middle">{tick:.0%}</text>')
    middle = f'x="{_LEFT + _SIDE / 2}" text-anchor="middle"'
    upright = f'transform="translate(14,{_TOP + _SIDE / 2}) rotate(-90)" text-anchor="middle"'
    parts += [
        f"<text {upright}>accuracy</text>",
        f'<text {middle} y="{height - 28}">confidence; below the line: examples</text>',
        f'<text {middle} y="{height - 10}">calibration error {error:.3f}</text>',
    ]
    return picture_svg(width, height, title, parts)


def _bar(each: Mapping[str, float], bottom: float, most: float) -> list[str]:
    across = f'x="{_LEFT + each["from"] * _SIDE:.1f}" width="{(each["to"] - each["from"]) * _SIDE - 1:.1f}"'
    accuracy, confidence = each["accuracy"] * _SIDE, each["confidence"] * _SIDE
    top, gap = bottom - max(accuracy, confidence), abs(accuracy - confidence)
    count = _COUNTS * each["num_examples"] / most
    found = f"confidence {each['confidence']:.1%}, accuracy {each['accuracy']:.1%}"
    red = 'fill="#d6403c" fill-opacity="0.35"'
    return [
        f"<g><title>{each['num_examples']} examples: {found}</title>",
        f'<rect {across} y="{bottom - accuracy:.1f}" height="{accuracy:.1f}" fill="#2f6fde"/>',
        f'<rect {across} y="{top:.1f}" height="{gap:.1f}" {red}/>',
        f'<rect {across} y="{bottom + 3}" height="{count:.1f}" fill="#97a1ad"/></g>',
    ]


_LABEL_CHARACTERS = 24
_LEAST_WIDTH = 280  # pixels, for the words
_MAX_NUMBERED = 40  # beyond so many classes the numbers in the cells cannot be read


def confusion_svg(confusion: npt.NDArray[np.int64], classes: list[str], title: str) -> str:
    """Draw a row for each true class and a column for each predicted one, shaded by share of the row."""
    size = len(classes)
    cell = max(6, min(40, 900 // max(size, 1)))
    margin = 32 + 7 * min(_LABEL_CHARACTERS, max((len(name) for name in classes), default=1))
    width, height = max(_LEAST_WIDTH, margin + size * cell + 20), margin + size * cell + 40
    shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
    type_size = min(11, cell)
    legend = "rows: true class; columns: predicted class"
    parts = [f'<text class="soft" x="8" y="{height - 8}" fill="#555">{legend}</text>']
    for row, name in enumerate(classes):
        y = margin + row * cell
        x = margin + row * cell
        label = f'font-size="{type_size}">{_shown(name)}</text>'
        middle = cell / 2 + type_size / 3
        parts.append(f'<text x="{margin - 6}" y="{y + middle:.1f}" text-anchor="end" {label}')
        parts.append(f'<text transform="translate({x + middle:.1f},{margin - 6}) rotate(-90)" {label}')
        for column in range(size):
            parts.append(_cell(confusion, shares, row, column, margin, cell, classes))
    return picture_svg(width, height, title, parts)


def _cell(
    confusion: npt.NDArray[np.int64],
    shares: npt.NDArray[np.float64],
    row: int,
    column: int,
    margin: int,
    cell: int,
    classes: list[str],
) -> str:
    x, y, share, count = (
        margin + column * cell,
        margin + row * cell,
        shares[row, column],
        confusion[row, column],
    )
    colour = "#1f6f43" if row == column else "#b3261e"
    tip = f"{_shown(classes[row])} taken for {_shown(classes[column])}: {count}"
    square = (
        f'<rect class="cell" x="{x}" y="{y}" width="{cell}" height="{cell}" fill="{colour}" '
        f'fill-opacity="{share:.3f}" stroke="#ddd"><title>{tip}</title></rect>'
    )
    if not count or len(classes) > _MAX_NUMBERED:
        return square
    ink = 'class="on-color" fill="white"' if share > 0.6 else 'fill="black"'
    return (
        f'{square}<text x="{x + cell / 2}" y="{y + cell / 2 + 4}" text-anchor="middle" {ink} '
        f'pointer-events="none">{count}</text>'
    )


def _shown(name: str) -> str:
    return escape(label_of(name, _LABEL_CHARACTERS))
