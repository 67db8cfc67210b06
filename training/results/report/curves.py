"""Curves of figures over epochs or steps as inline SVG, coloured by the classes of the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from markupsafe import Markup

from shardmill.infra.html.formatting import visible

_WIDTH, _HEIGHT = 460, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 20, 12, 30
_TICKS = 4
_DOTTED = 60  # the most points of a curve that are drawn as dots too, with their values
_POINTS = 400  # a curve has about as many pixels

Points = Sequence[tuple[float, float]]


def curves_svg(
    series: Mapping[str, Points],
    label: str,
    kind: str | None = None,
    *,
    kinds: Mapping[str, str] | None = None,
    across: str = "epoch",
) -> Markup:
    """Draw figures over epochs or steps.

    Args:
        series: split -> (epoch, value); the name of a split is the class of its curve.
        label: for those who cannot see the picture.
        kind: the class of all curves, if they are not those of splits.
        kinds: name of a curve -> its class, if each has another one.
        across: name of the x axis.
    """
    series = {name: _thinned(curve) for name, curve in series.items()}
    points = [point for curve in series.values() for point in curve]
    if not points:
        return Markup()
    low, high, step = _ticks(min(value for _, value in points), max(value for _, value in points))
    last = max(epoch for epoch, _ in points)
    first = min(epoch for epoch, _ in points)

    def x(epoch: float) -> float:
        share = (epoch - first) / (last - first) if last > first else 0.5
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _TOP + (high - value) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">']
    for number in range(round((high - low) / step) + 1):
        value = low + number * step
        parts.append(f'<path class="grid" d="M{_LEFT} {y(value):.1f} H{_WIDTH - _RIGHT}"/>')
        words = _tick(value, step)
        parts.append(f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{words}</text>')
    for epoch in sorted({first, last}):
        parts.append(f'<text x="{x(epoch):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{epoch:g}</text>')
    middle = (_LEFT + _WIDTH) / 2 if last > first else _LEFT + 24  # beside the only number
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(across)}</text>')
    for split, curve in series.items():
        path = " L".join(f"{x(epoch):.1f} {y(value):.1f}" for epoch, value in curve)
        style = escape(kind or (kinds or {}).get(split, split))
        parts.append(f'<path class="curve-{style}" d="M{path}"/>' if len(curve) > 1 else "")
        for epoch, value in curve if len(curve) <= _DOTTED else ():
            tip = f"{escape(visible(split))}, {escape(across)} {epoch:g}: {value:.4g}"
            parts.append(_dot(style, x(epoch), y(value), tip))
    return Markup("".join([*parts, "</svg>"]))


def _thinned(curve: Points) -> Points:
    """Return the finite points of a curve; of a long one, evenly chosen ones with the last."""
    finite = [point for point in curve if point[1] is not None and math.isfinite(point[1])]
    every = math.ceil(len(finite) / _POINTS)
    return finite if every <= 1 else [*finite[:-1:every], finite[-1]]


def _tick(value: float, step: float) -> str:
    """Return the number at a tick, with as many digits as tell it from the next one."""
    if step >= 1000:
        return f"{value:,.0f}"
    digits = max(0, 1 - math.floor(math.log10(step)))
    return f"{round(value, digits) + 0.0:.6g}"


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
