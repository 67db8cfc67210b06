"""A confusion matrix as an SVG picture."""

from __future__ import annotations

from html import escape

import numpy as np
import numpy.typing as npt

from shardmill.infra.html.charts import label_of, picture_svg

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
