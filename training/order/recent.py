"""What was computed last is kept: steps are asked for one after the other, and many share one computation."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A pure function whose last few values are kept. Safe for many threads, and picklable if it is.

    There is no lock: the pairs are replaced as a whole, and where two threads meet, at worst one value is
    computed twice.
    """

    def __init__(self, function: Callable[[K], V], kept: int) -> None:
        self._function = function
        self._kept = kept
        self._pairs: tuple[tuple[K, V], ...] = ()

    def __call__(self, key: K) -> V:
        for known, value in self._pairs:
            if known == key:
                return value
        value = self._function(key)
        self._pairs = ((key, value), *self._pairs[: self._kept - 1])
        return value

    def __getstate__(self) -> dict[str, object]:
        """Without the values, which the other process makes anew."""
        return {"_function": self._function, "_kept": self._kept, "_pairs": ()}
