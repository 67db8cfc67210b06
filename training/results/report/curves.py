"""Curves of figures over epochs as inline SVG, coloured by the classes of the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from markupsafe import Markup

_WIDTH, _HEIGHT = 460, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 12, 30
_TICKS = 4

Points = Sequence[tuple[float, float]]


def curves_svg(series: Mapping[str, Points], label: str, kind: str | None = None) -> Markup:
    """Draw figures over epochs.

    Args:
        series: split -> (epoch, value); the name of a split is the class of its curve.
        label: for those who cannot see the picture.
        kind: the class of all curves, if they are not those of splits.
    """
    points = [point for curve in series.values() for point in curve if math.isfinite(point[1])]
    if not points:
        return Markup()
    low, high, step = _ticks(min(value for _, value in points), max(value for _, value in points))
    last = max(epoch for epoch, _ in points)
    first = min(epoch for epoch, _ in points)

    def x(epoch: float) -> float:
        across = (epoch - first) / (last - first) if last > first else 0.5
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _TOP + (high - value) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">']
    for number in range(round((high - low) / step) + 1):
        value = low + number * step
        parts.append(f'<path class="grid" d="M{_LEFT} {y(value):.1f} H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.3g}</text>')
    for epoch in sorted({first, last}):
        parts.append(f'<text x="{x(epoch):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{epoch:g}</text>')
    parts.append(f'<text x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">epoch</text>')
    for split, curve in series.items():
        shown = [(epoch, value) for epoch, value in curve if math.isfinite(value)]
        path = " L".join(f"{x(epoch):.1f} {y(value):.1f}" for epoch, value in shown)
        style = escape(kind or split)
        parts.append(f'<path class="curve-{style}" d="M{path}"/>' if len(shown) > 1 else "")
        for epoch, value in shown:
            tip = f"{escape(split)}, epoch {epoch:g}: {value:.4g}"
            parts.append(_dot(style, x(epoch), y(value), tip))
    return Markup("".join([*parts, "</svg>"]))


def _dot(style: str, x: float, y: float, tip: str) -> str:
    return f'<circle class="curve-{style}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{tip}</title></circle>'


def _ticks(low: float, high: float) -> tuple[float, float, float]:
    """Return the lowest and highest tick around a range, and the step between ticks."""
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    return math.floor(low / step) * step, math.ceil(high / step) * step, step
