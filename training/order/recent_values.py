"""Keep the last few values of a pure function, since neighbouring steps repeat most of its calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class RecentValues(Generic[K, V]):
    """A pure function that keeps its last few values. Safe for many threads; picklable if the function is.

    There is no lock. The kept pairs are replaced as a whole, so at worst two threads compute the same value.
    """

    def __init__(self, function: Callable[[K], V], kept: int) -> None:
        self._function = function
        self._kept = kept
        self._pairs: tuple[tuple[K, V], ...] = ()

    def __call__(self, key: K) -> V:
        """Return the value of the function at ``key``."""
        for known, value in self._pairs:
            if known == key:
                return value
        value = self._function(key)
        self._pairs = ((key, value), *self._pairs[: self._kept - 1])
        return value

    def __getstate__(self) -> dict[str, object]:
        """Leave out the values, which another process computes again."""
        return {"_function": self._function, "_kept": self._kept, "_pairs": ()}
