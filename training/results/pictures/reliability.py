"""A reliability diagram as an SVG picture (Guo et al. 2017)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardmill.infra.html.charts import exact_line, picture_svg, plot_area

_SIDE = 300  # side of the plot (pixels)
_LEFT, _TOP, _COUNTS = 50, 34, 46  # margins, and the height of the bars of counts


def reliability_svg(bins: Sequence[Mapping[str, float]], error: float, title: str) -> str:
    """Draw the accuracy of predictions by their confidence, and below how many there are.

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
