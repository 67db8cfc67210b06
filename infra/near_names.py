"""Suggest the name that a person meant by one that does not exist.

Names are compared without case and signs: ``Image-Size`` is ``image_size``. Of equally near names the first
one is suggested.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

_NEAR = 0.6  # likeness from which a name is suggested
# Fewest letters of an abbreviation (a beginning) and of another part of a name, and how near each is to it.
_ABBREVIATION, _ABBREVIATED = 3, 0.85
_PART, _IN_IT = 4, 0.75
_SHOWN = 30


def likeness(name: str, known: str, least: float = 0.0) -> float:
    """Return how alike two names are, from 0 to 1; 1 if only case and signs differ.

    A name that stands at the beginning of the other or within it is nearer than its letters say.

    Args:
        name: what a person wrote.
        known: a name that exists.
        least: likeness below this may be returned as 0, which takes less time.
    """
    one, other = _plain(name), _plain(known)
    bound = 0.0
    if len(one) >= _ABBREVIATION and other.startswith(one):
        bound = max(_ABBREVIATED, len(one) / len(other))
    elif len(one) >= _PART and one in other:
        bound = _IN_IT
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    if matcher.real_quick_ratio() < least or matcher.quick_ratio() < least:
        return bound
    return max(bound, matcher.ratio())


def near_names(name: str, known: Iterable[str], count: int = 1, least: float = _NEAR) -> list[str]:
    """Return the known names nearest to a name, nearest first; each has at least the likeness ``least``."""
    found = [(likeness(name, one, least), one) for one in known]
    near = sorted((each for each in found if each[0] >= least), key=lambda each: -each[0])
    return [one for _, one in near[:count]]


def near_miss(name: str, known: Sequence[str], least: float = _NEAR) -> str | None:
    """Return a remedy for an unknown name: the nearest known one, or a list; None without any."""
    if near := near_names(name, known, least=least):
        return f"did you mean {near[0]!r}?"
    more = f" and {len(known) - _SHOWN:,} more" if len(known) > _SHOWN else ""
    return f"there are: {', '.join(known[:_SHOWN])}{more}" if known else None


def plain_words(name: str) -> list[str]:
    """Return the words of a name in lower case, without signs."""
    return re.findall(r"[^\W_]+", name.lower())


def _plain(name: str) -> str:
    return "".join(plain_words(name)) or name.lower()
