"""Counts, sizes, figures and durations as people read them, and text that cannot harm a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
# C0 and C1 controls, the marks that turn the direction of text or break lines, and halves of surrogate pairs.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 input`` or ``2,000 inputs``; ``plural`` for nouns whose plural does not just take an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {plural or f'{noun}s'}"


def first_of(names: Sequence[str], most: int) -> str:
    """Return the first names, and the number of the others: ``a, b, c and 2 more``."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def shortened(text: str, most: int) -> str:
    """Return a text of at most so many characters; one that is cut ends in ``…``."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def readable_bytes(num_bytes: float) -> str:
    """Return a size such as ``812 B``, ``12.3 MiB`` or ``3,072.0 TiB``."""
    for unit in _BYTE_UNITS[:-1]:
        if num_bytes < 1024:
            return f"{num_bytes:,.0f} B" if unit == "B" else f"{num_bytes:,.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:,.1f} {_BYTE_UNITS[-1]}"


def readable_figure(value: float | None) -> str:
    """Return a number with at most four significant digits, such as ``0.6931`` or ``1,234``.

    None stands for a number that is not finite, as in JSON.
    """
    if value is None:
        return "not finite"
    if isinstance(value, int) or not math.isfinite(value):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def readable_seconds(seconds: float) -> str:
    """Return a duration in its two largest units, such as ``42 s``, ``4 min`` or ``1 h 20 min``."""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 1 or seconds == 0 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    (hours, minutes) = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    (days, hours) = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def printable(text: str, *, keep: str = "") -> str:
    r"""Text with control characters written out (``\x1b``), so that no file name can drive the terminal.

    Args:
        text: anything that came from outside.
        keep: characters let through, such as the line ends of a message.
    """
    return _UNPRINTABLE.sub(
        lambda found: found[0] if found[0] in keep else found[0].encode("unicode_escape").decode(), text
    )
