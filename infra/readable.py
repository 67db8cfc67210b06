"""Counts and sizes as people read them."""

from __future__ import annotations

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 input`` or ``2,000 inputs``; ``plural`` for nouns whose plural does not just take an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {plural or f'{noun}s'}"


def readable_bytes(num_bytes: float) -> str:
    """Return a size such as ``812 B``, ``12.3 MiB`` or ``3,072.0 TiB``."""
    for unit in _BYTE_UNITS[:-1]:
        if num_bytes < 1024:
            return f"{num_bytes:,.0f} B" if unit == "B" else f"{num_bytes:,.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:,.1f} {_BYTE_UNITS[-1]}"
