"""Draw a profile as an SVG picture: the cost of each stage, and the speed of all together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from shardmill.training.profiling.stages import Stage

_WIDTH, _LEFT, _ROW, _TOP = 760, 150, 26, 64
_BAR = _WIDTH - _LEFT - 170
_PLAIN, _DEAREST, _RATE = "#8fb4cf", "#c2571a", "#4a7f4a"


def profile_svg(stages: Sequence[Stage], rates: Mapping[str, float], bottleneck: str, title: str) -> str:
    """Draw the picture.

    Args:
        stages: the stages, each measured alone on one thread.
        rates: name -> images a second of what works together.
        bottleneck: the stage to point out.
        title: the first line.
    """
    most = max((stage.microseconds for stage in stages), default=1.0)
    fastest = max(rates.values(), default=1.0)
    height = _TOP + _ROW * (len(stages) + len(rates)) + 58
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}">',
        "<style>text { font: 13px sans-serif } .quiet { fill: #666; font-size: 12px }</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="16" y="24" font-weight="bold">{escape(title)}</text>',
        f'<text x="16" y="{_TOP - 14}" class="quiet">each stage alone, µs of one core per image</text>',
    ]
    y = _TOP
    for stage in stages:
        colour = _DEAREST if stage.name == bottleneck else _PLAIN
        value = f"{stage.microseconds:,.1f} µs"
        parts += _bar(stage.name, stage.microseconds / most, colour, value, stage.detail, y)
        y += _ROW
    y += 34
    parts.append(f'<text x="16" y="{y - 14}" class="quiet">all together, images a second</text>')
    for name, rate in rates.items():
        colour = _DEAREST if name == bottleneck else _RATE
        parts += _bar(name, rate / fastest, colour, f"{rate:,.0f} images/s", "", y)
        y += _ROW
    return "\n".join([*parts, "</svg>", ""])


def _bar(name: str, share: float, colour: str, value: str, detail: str, y: int) -> list[str]:
    length = max(1.0, share * _BAR)
    place = f'x="{_LEFT}" y="{y + 2}" width="{length:.1f}" height="{_ROW - 9}"'
    return [
        f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>',
        f'<rect {place} rx="2" fill="{colour}"><title>{escape(detail)}</title></rect>',
        f'<text x="{_LEFT + length + 8:.1f}" y="{y + 14}">{escape(value)}</text>',
    ]
