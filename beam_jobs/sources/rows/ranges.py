"""Reads ranges of a row file one after the other, through a window that moves on in an object store."""

from __future__ import annotations

from typing import Protocol

_WINDOW_BYTES = 4 << 20  # of an object: a request for each small image would take longer than the image


class Ranges(Protocol):
    """An open file that is read by ranges: ``Container`` for instance."""

    def read_at(self, length: int, offset: int) -> bytes:
        """Return ``length`` bytes from ``offset``; fewer only if the file ends."""

    def close(self) -> None:
        """Close the file."""


class Window:
    """Ranges of an object. The next few MiB are fetched with one request.

    Args:
        ranges: the open object.
    """

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._start = 0
        self._data = b""

    def read_at(self, length: int, offset: int) -> bytes:
        """Return ``length`` bytes from ``offset``; fewer only if the object ends."""
        if not self._start <= offset <= offset + length <= self._start + len(self._data):
            self._start = offset
            self._data = self._ranges.read_at(max(length, _WINDOW_BYTES), offset)
        return self._data[offset - self._start : offset - self._start + length]

    def close(self) -> None:
        """Close the object."""
        self._ranges.close()
