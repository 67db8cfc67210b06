"""Predicted beside true numbers as an SVG picture: the numbers themselves, and the residuals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shardmill.infra.html.charts import exact_line, label_of, picture_svg, plot_area

_SIDE = 260  # side of each plot (pixels)
_LEFT, _TOP, _BETWEEN, _BELOW = 58, 34, 74, 46  # margins
_NAME_CHARACTERS = 60

Numbers = npt.NDArray[np.floating]


def scatter_svg(wanted: Numbers, predicted: Numbers, name: str) -> str:
    """Draw a point for each example: predicted by true number, and the residual by true number.

    Args:
        wanted: float [n], the true numbers.
        predicted: float [n], the predicted ones; those that are not finite are left out.
        name: the name of the target.
    """
    finite = np.isfinite(wanted) & np.isfinite(predicted)
    wanted, predicted = wanted[finite].astype(np.float64), predicted[finite].astype(np.float64)
    width, height = _LEFT + 2 * _SIDE + _BETWEEN + 20, _TOP + _SIDE + _BELOW
    across = _range(wanted)
    residuals = predicted - wanted
    most = max(abs(value) for value in _range(np.append(residuals, 0.0)))
    second = _LEFT + _SIDE + _BETWEEN
    parts = [
        *_plot(_LEFT, wanted, predicted, across, _range(np.concatenate([wanted, predicted])), "predicted"),
        *_plot(second, wanted, residuals, across, (-most, most), "predicted less true"),
    ]
    return picture_svg(width, height, label_of(name, _NAME_CHARACTERS), parts)


def _plot(
    left: int,
    horizontal: Numbers,
    vertical: Numbers,
    across: tuple[float, float],
    upward: tuple[float, float],
    caption: str,
) -> list[str]:
    """Draw one plot, with the line on which exact predictions lie."""
    bottom = _TOP + _SIDE
    x = left + _SIDE * (horizontal - across[0]) / (across[1] - across[0])
    y = bottom - _SIDE * (vertical - upward[0]) / (upward[1] - upward[0])
    exact = across if caption == "predicted" else (0.0, 0.0)
    ends = [bottom - _SIDE * (value - upward[0]) / (upward[1] - upward[0]) for value in exact]
    middle = f'text-anchor="middle" x="{left + _SIDE / 2}" y="{bottom + 34}"'
    upright = f'transform="translate({left - 46},{_TOP + _SIDE / 2}) rotate(-90)" text-anchor="middle"'
    return [
        plot_area(left, _TOP, _SIDE),
        exact_line(f"M{left} {ends[0]:.1f} L{left + _SIDE} {ends[1]:.1f}"),
        f'<g fill="#2f6fde" fill-opacity="0.45">{_points(x, y)}</g>',
        *(_tick(left + share * _SIDE, bottom + 16, "middle", across, share) for share in (0.0, 0.5, 1.0)),
        *(_tick(left - 6, bottom - share * _SIDE + 4, "end", upward, share) for share in (0.0, 0.5, 1.0)),
        f"<text {middle}>true</text>",
        f"<text {upright}>{caption}</text>",
    ]


def _points(x: Numbers, y: Numbers) -> str:
    pairs: Sequence[tuple[float, float]] = list(zip(x.tolist(), y.tolist(), strict=True))
    return "".join(f'<circle cx="{across:.1f}" cy="{up:.1f}" r="2.5"/>' for across, up in pairs)


def _tick(x: float, y: float, anchor: str, ends: tuple[float, float], share: float) -> str:
    value = ends[0] + share * (ends[1] - ends[0])
    text = "0" if abs(value) < 1e-9 * max(abs(end) for end in ends) else f"{value:.3g}"
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _range(values: Numbers) -> tuple[float, float]:
    """Return the smallest and the largest value, apart from each other."""
    if not values.size:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    room = 0.02 * (high - low) or max(abs(low), 1.0) * 0.5
    return low - room, high + room
