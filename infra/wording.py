"""Words around numbers, for everything that people read."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """``1 input``, ``2,000 inputs``; for nouns whose plural takes an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
