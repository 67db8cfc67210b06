"""What the SVG pictures of results have in common.

Each is a file of its own, black on white. The style sheet of a page that shows it can change the colours of
its text (but ``on-color``) and of its classes ``ground``, ``plot``, ``cell``, ``exact`` and ``soft``.
"""

from __future__ import annotations

from html import escape

from shardmill.infra.readable import shortened


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
