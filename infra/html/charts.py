"""Draw all charts, as SVG text.

``stacked_bars``, ``grouped_bars``, ``panels`` and ``intervals`` make pictures that stand alone, with their
colours in attributes. ``curves_svg`` makes curves inside a page, coloured by the classes of its style sheet.
``picture_svg`` and what follows it draw results in files of their own, black on white; the style sheet of a
page that shows one can change the colours of its text (but ``on-color``) and of its classes ``ground``,
``plot``, ``cell``, ``exact`` and ``soft``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain

from markupsafe import Markup

from shardmill.infra.html.page import visible
from shardmill.infra.readable import shortened

_COLOURS = ("#2f6fde", "#f0a030", "#2ea36b", "#c0409a", "#7b61d9", "#8a8f98")

_INK, _FAINT, _PAPER, _MARKED = "#22262e", "#d9dde3", "#ffffff", "#c2571a"
_WIDTH = 720
_MAX_BARS = 60
_LABEL_CHARACTERS = 22
_DOTTED = 50  # the most points of a curve that are drawn as dots too

_PAGE_WIDTH, _PAGE_HEIGHT = 460, 240
_PAGE_LEFT, _PAGE_RIGHT, _PAGE_TOP, _PAGE_BOTTOM = 58, 20, 12, 30
_TICKS = 4
_PAGE_DOTTED = 60  # the most points of a curve that are drawn as dots too, with their values
_POINTS = 400  # a curve has about as many pixels

Point = tuple[float, float]
Points = Sequence[Point]


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
        parts.append(_text(left - 8, y + 13, shortened(label, _LABEL_CHARACTERS), anchor="end"))
        for colour, of_series in zip(_colours(len(counts)), counts.values(), strict=True):
            width = of_series.get(label, 0) * scale
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{bar}" fill="{colour}"/>')
            x += width
        parts.append(_text(x + 6, y + 13, f"{totals[label]:,}"))
    return _svg(parts, top + len(labels) * (bar + 6) + 12)


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a chart.

    Attributes:
        name: text at its left.
        value: its length; bars of one group have the same scale.
        words: text at its right.
        detail: text that is shown when a pointer rests on it.
        is_marked: whether it stands out.
    """

    name: str
    value: float
    words: str
    detail: str = ""
    is_marked: bool = False


def grouped_bars(title: str, groups: Mapping[str, Sequence[Bar]]) -> str:
    """Draw groups of horizontal bars, {caption: bars}; each group has a scale of its own."""
    parts, left, row, y = [_text(16, 24, title, size=13, bold=True)], 150, 26, 64
    for colour, (caption, bars) in zip(_colours(len(groups)), groups.items(), strict=True):
        parts.append(_text(16, y - 14, caption))
        longest = max((bar.value for bar in bars), default=0.0) or 1.0
        for bar in bars:
            length = max(1.0, bar.value / longest * (_WIDTH - left - 170))
            fill = _MARKED if bar.is_marked else colour
            place = f'x="{left}" y="{y + 2}" width="{length:.1f}" height="{row - 9}"'
            parts += [
                _text(left - 8, y + 14, bar.name, anchor="end"),
                f'<rect {place} rx="2" fill="{fill}"><title>{escape(bar.detail)}</title></rect>',
                _text(left + length + 8, y + 14, bar.words),
            ]
            y += row
        y += 34
    return _svg(parts, y - 10)


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart of several: lines over a shared x axis.

    Attributes:
        title: above the chart.
        series: name -> its points, each (x, y).
    """

    title: str
    series: Mapping[str, Points]


def panels(title: str, shown: Sequence[Panel], x_label: str, columns: int = 2) -> str:
    """Draw several charts in a grid, with one x axis and one legend: a name has the same colour in each."""
    names = list(dict.fromkeys(name for panel in shown for name in panel.series))
    x_span = _span([x for panel in shown for of_name in panel.series.values() for x, _ in of_name])
    width, height, top = _WIDTH // columns, 200, 64
    parts = [_text(16, 26, title, size=15, bold=True), *_legend(names, 48)]
    for index, panel in enumerate(shown):
        left, y = (index % columns) * width, top + (index // columns) * height
        parts.append(_text(left + 56, y + 12, panel.title, bold=True))
        chart = _Chart(left + 56, y + 24, width - 76, height - 56, x_span, x_label)
        parts += chart.draw(panel.series, dict(zip(names, _colours(len(names)), strict=True)))
    return _svg(parts, top + -(-len(shown) // columns) * height)


@dataclass(frozen=True, slots=True)
class _Chart:
    """The rectangle of a chart, and its x axis."""

    left: float
    top: float
    width: float
    height: float
    x_span: Point
    x_label: str

    def draw(self, series: Mapping[str, Points], colours: Mapping[str, str]) -> Iterator[str]:
        """Yield the elements of the chart, each series in its colour."""
        low, high = _span([y for points in series.values() for _, y in points])
        left, right, bottom = self.left, self.left + self.width, self.top + self.height
        for tick in range(5):
            y = self.top + self.height * tick / 4
            yield f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_FAINT}"/>'
            yield _text(left - 8, y + 4, _number(high - (high - low) * tick / 4), anchor="end")
        for name, points in series.items():
            path = [self._place(point, low, high) for point in points]
            colour, joined = colours[name], " ".join(path)
            yield f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>'
            for place in path if len(path) <= _DOTTED else ():
                at_x, _, at_y = place.partition(",")
                yield f'<circle cx="{at_x}" cy="{at_y}" r="3" fill="{colour}"/>'
        yield _text(left, bottom + 20, _number(self.x_span[0]))
        yield _text(right, bottom + 20, _number(self.x_span[1]), anchor="end")
        yield _text(left + self.width / 2, bottom + 20, self.x_label, anchor="middle")

    def _place(self, point: Point, low: float, high: float) -> str:
        x_low, x_high = self.x_span
        x = self.left + (point[0] - x_low) / (x_high - x_low) * self.width
        y = self.top + self.height - (point[1] - low) / (high - low) * self.height
        return f"{x:.1f},{y:.1f}"


def _number(value: float) -> str:
    """Return a number of an axis, short enough for its margin."""
    if abs(value) >= 1000:
        return f"{value:,.0f}" if abs(value) < 1e7 else f"{value:.3g}"
    return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.3g}"


def intervals(title: str, rows: Mapping[str, tuple[float, float, float]], worse: str, better: str) -> str:
    """A chart with an interval for each row, around the zero that the rows share.

    Args:
        title: Title above the chart.
        rows: {name: (low, value, high)}; greater is better. Each row has a scale of its own.
        worse: Words on the left of zero.
        better: Words on the right of zero.
    """
    left, right, step, top = 190, _WIDTH - 150, 34, 84
    middle, half = (left + right) / 2, (right - left) / 2
    bottom = top + len(rows) * step - 10
    parts = [
        _text(16, 26, title, size=15, bold=True),
        _text(middle - 12, 56, f"← {worse}", anchor="end"),
        _text(middle + 12, 56, f"{better} →"),
        f'<line x1="{middle}" x2="{middle}" y1="{top - 16}" y2="{bottom}" stroke="{_INK}"/>',
    ]
    for number, (name, (low, value, high)) in enumerate(rows.items()):
        y, scale = top + number * step, half / (max(abs(low), abs(value), abs(high)) or 1.0)
        colour = _COLOURS[2] if low > 0 else _COLOURS[1] if high < 0 else _COLOURS[5]
        x_low, x, x_high = (middle + scale * each for each in (low, value, high))
        parts += [
            _text(left - 12, y + 4, shortened(name, _LABEL_CHARACTERS), anchor="end"),
            f'<rect x="{x_low:.1f}" y="{y - 3}" width="{x_high - x_low:.1f}" height="6" fill="{colour}"/>',
            f'<circle cx="{x:.1f}" cy="{y}" r="6" fill="{colour}"/>',
            _text(right + 12, y + 4, f"{low:+.4f} to {high:+.4f}"),
        ]
    return _svg(parts, bottom + 16)


def _span(values: Sequence[float]) -> Point:
    """(lowest, highest) value, never equal: their difference divides."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _colours(count: int) -> list[str]:
    return [_COLOURS[index % len(_COLOURS)] for index in range(count)]


def _legend(names: Sequence[str], y: int) -> list[str]:
    parts, x = [], 16.0
    for colour, name in zip(_colours(len(names)), names, strict=True):
        parts.append(f'<rect x="{x:.0f}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(x + 17, y, name))
        x += 40 + 7.2 * len(name)
    return parts


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
        return _PAGE_LEFT + share * (_PAGE_WIDTH - _PAGE_LEFT - _PAGE_RIGHT)

    def y(value: float) -> float:
        return _PAGE_TOP + (high - value) / (high - low) * (_PAGE_HEIGHT - _PAGE_TOP - _PAGE_BOTTOM)

    size = f'viewBox="0 0 {_PAGE_WIDTH} {_PAGE_HEIGHT}"'
    parts = [f'<svg class="chart" {size} role="img" aria-label="{escape(label)}">']
    for number in range(round((high - low) / step) + 1):
        value = low + number * step
        parts.append(f'<path class="grid" d="M{_PAGE_LEFT} {y(value):.1f} H{_PAGE_WIDTH - _PAGE_RIGHT}"/>')
        words = _tick(value, step)
        parts.append(f'<text x="{_PAGE_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{words}</text>')
    for epoch in sorted({first, last}):
        parts.append(f'<text x="{x(epoch):.1f}" y="{_PAGE_HEIGHT - 8}" text-anchor="middle">{epoch:g}</text>')
    middle = (_PAGE_LEFT + _PAGE_WIDTH) / 2 if last > first else _PAGE_LEFT + 24  # beside the only number
    parts.append(f'<text x="{middle}" y="{_PAGE_HEIGHT - 8}" text-anchor="middle">{escape(across)}</text>')
    for split, curve in series.items():
        path = " L".join(f"{x(epoch):.1f} {y(value):.1f}" for epoch, value in curve)
        style = escape(kind or (kinds or {}).get(split, split))
        parts.append(f'<path class="curve-{style}" d="M{path}"/>' if len(curve) > 1 else "")
        for epoch, value in curve if len(curve) <= _PAGE_DOTTED else ():
            tip = f"{escape(visible(split))}, {escape(across)} {epoch:g}: {value:.4g}"
            place = f'cx="{x(epoch):.1f}" cy="{y(value):.1f}" r="3"'
            parts.append(f'<circle class="curve-{style}" {place}><title>{tip}</title></circle>')
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


def _ticks(low: float, high: float) -> tuple[float, float, float]:
    """Return the lowest and highest tick around a range, and the step between ticks."""
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    return math.floor(low / step) * step, math.ceil(high / step) * step, step


def picture_svg(width: float, height: float, title: str, parts: list[str]) -> str:
    """Draw a picture with its title at the top left.

    Args:
        width: width of the picture (pixels).
        height: height of the picture (pixels).
        title: plain text.
        parts: its elements.
    """
    size = f'viewBox="0 0 {width} {height}" width="{width}" font-size="11" font-family="sans-serif"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            f'<rect class="ground" width="{width}" height="{height}" fill="white"/>',
            f'<text x="8" y="18" font-weight="bold">{escape(title)}</text>',
            *parts,
            "</svg>",
            "",
        ]
    )


def plot_area(left: float, top: float, side: float) -> str:
    """Draw the square in which values stand."""
    place = f'x="{left}" y="{top}" width="{side}" height="{side}"'
    return f'<rect class="plot" {place} fill="#f6f7f9" stroke="#ddd"/>'


def exact_line(path: str) -> str:
    """Draw a dashed line along a path: exact predictions lie on it."""
    return f'<path class="exact" d="{path}" stroke="#5a6675" stroke-dasharray="4 4"/>'


def label_of(name: str, most: int) -> str:
    """Shorten a name to so many characters, and replace those that XML or UTF-8 cannot hold."""
    printable = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in name)
    return shortened(printable, most)
