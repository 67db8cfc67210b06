"""Draw charts for artifacts as SVG text: stacked bars for classes, and curves over steps."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from itertools import chain

COLOURS = ("#2f6fde", "#f0a030", "#2ea36b", "#c0409a", "#7b61d9", "#8a8f98")

_INK, _FAINT, _PAPER = "#22262e", "#d9dde3", "#ffffff"
_WIDTH = 720
_MAX_BARS = 60

Point = tuple[float, float]


def data_uri(svg: str) -> str:
    """A data URI of an SVG: a browser shows it without a request."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode("ascii")


def stacked_bars(title: str, counts: Mapping[str, Mapping[str, int]]) -> str:
    """A chart with a horizontal bar for each class, stacked by series.

    Args:
        title: Title above the chart.
        counts: {series: {class: count}}, series in the order of stacking. When there are many classes, only
            the smallest and the largest are drawn, because they show the imbalance.
    """
    totals: dict[str, int] = {}
    for label, count in chain.from_iterable(of_series.items() for of_series in counts.values()):
        totals[label] = totals.get(label, 0) + count
    labels = sorted(totals, key=lambda label: (-totals[label], label))
    left_out = max(0, len(labels) - _MAX_BARS)
    if left_out:
        labels = labels[: _MAX_BARS // 2] + labels[-_MAX_BARS // 2 :]
        title = f"{title} ({left_out} classes between the extremes left out)"
    most = max(totals.values(), default=0) or 1
    left, bar, top = 170, 18, 64
    scale = (_WIDTH - left - 70) / most
    parts = [_text(16, 26, title, size=15, bold=True), *_legend(list(counts), 48)]
    for row, label in enumerate(labels):
        y, x = top + row * (bar + 6), float(left)
        parts.append(_text(left - 8, y + 13, _shortened(label), anchor="end"))
        for colour, of_series in zip(_colours(len(counts)), counts.values(), strict=True):
            width = of_series.get(label, 0) * scale
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{bar}" fill="{colour}"/>')
            x += width
        parts.append(_text(x + 6, y + 13, f"{totals[label]:,}"))
    return _svg(parts, top + len(labels) * (bar + 6) + 12)


def curves(title: str, series: Mapping[str, Sequence[Point]], x_label: str) -> str:
    """A chart of lines over a shared x axis; y spans the smallest to the largest value."""
    points = [point for of_series in series.values() for point in of_series]
    left, top, width, height = 70, 64, _WIDTH - 100, 240
    x_low, x_high = _span([x for x, _ in points])
    y_low, y_high = _span([y for _, y in points])

    def place(point: Point) -> str:
        x = left + (point[0] - x_low) / (x_high - x_low) * width
        y = top + height - (point[1] - y_low) / (y_high - y_low) * height
        return f"{x:.1f},{y:.1f}"

    parts = [_text(16, 26, title, size=15, bold=True), *_legend(list(series), 48)]
    for tick in range(5):
        y = top + height * tick / 4
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y}" y2="{y}" stroke="{_FAINT}"/>')
        parts.append(_text(left - 8, y + 4, f"{y_high - (y_high - y_low) * tick / 4:.3g}", anchor="end"))
    for colour, of_series in zip(_colours(len(series)), series.values(), strict=True):
        path = " ".join(place(point) for point in of_series)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for point in of_series if len(of_series) <= 50 else ():
            at_x, _, at_y = place(point).partition(",")
            parts.append(f'<circle cx="{at_x}" cy="{at_y}" r="3" fill="{colour}"/>')
    parts.append(_text(left, top + height + 20, f"{x_low:g}"))
    parts.append(_text(left + width, top + height + 20, f"{x_high:g}", anchor="end"))
    parts.append(_text(left + width / 2, top + height + 20, x_label, anchor="middle"))
    return _svg(parts, top + height + 32)


def _span(values: Sequence[float]) -> Point:
    """(lowest, highest) value, never equal: their difference divides."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _colours(count: int) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(count)]


def _legend(names: Sequence[str], y: int) -> list[str]:
    parts, x = [], 16.0
    for colour, name in zip(_colours(len(names)), names, strict=True):
        parts.append(f'<rect x="{x:.0f}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(x + 17, y, name))
        x += 40 + 7.2 * len(name)
    return parts


def _shortened(label: str, length: int = 22) -> str:
    return label if len(label) <= length else label[: length - 1] + "…"


def _text(x: float, y: float, text: str, *, size: int = 12, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{weight} fill="{_INK}">'
        f"{escape(text)}</text>"
    )


def _svg(parts: Sequence[str], height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {_WIDTH} {height:.0f}" font-family="system-ui, sans-serif">'
        f'<rect width="100%" height="100%" fill="{_PAPER}"/>{"".join(parts)}</svg>'
    )
