"""A cache of values that are made again when their source has changed."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Remembered(Generic[V]):
    """The last values by key, up to a number of them. Safe to use from many threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[object, V]] = OrderedDict()

    def get(self, key: Hashable, stamp: object, make: Callable[[], V]) -> V:
        """Return the value of a key, made anew if there is none of this stamp."""
        with self._lock:
            found = self._values.get(key)
            if found is not None and found[0] == stamp:
                self._values.move_to_end(key)
                return found[1]
        value = make()
        with self._lock:
            self._values[key] = (stamp, value)
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return value


class ForSeconds(Generic[V]):
    """A value that is made anew when it is older than some seconds; one thread makes it, the others wait."""

    def __init__(self, seconds: float, make: Callable[[], V]) -> None:
        self._seconds, self._make = seconds, make
        self._lock = threading.Lock()
        self._made: tuple[float, V] | None = None

    def get(self) -> V:
        """Return the value."""
        with self._lock:
            if self._made is None or time.monotonic() - self._made[0] > self._seconds:
                self._made = (time.monotonic(), self._make())
            return self._made[1]
