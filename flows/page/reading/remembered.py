"""Caches of values: made again when their source has changed, or asked for again after some seconds."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

V = TypeVar("V")

# A scraper and a person get an answer within a second, whatever the server does that was asked.
_PATIENCE_SECONDS = 0.6


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


@dataclass(frozen=True, slots=True)
class Known(Generic[V]):
    """The latest answer of a server that may not answer now.

    Attributes:
        value: the last one; None: none was ever read.
        read: when it was read (seconds since 1970).
        problem: why the server gave no newer answer; None: this answer is new.
    """

    value: V | None = None
    read: float = 0.0
    problem: str | None = None


class LastKnown(Generic[V]):
    """A value of a server, asked for at most once in some seconds; nobody waits long for it."""

    def __init__(
        self, server: str, seconds: float, ask: Callable[[], Awaitable[V]], away: type[Exception]
    ) -> None:
        """Prepare to ask.

        Args:
            server: its name in sentences.
            seconds: the age of a value that is asked for anew.
            ask: returns a new value.
            away: the error by which ``ask`` says that there is none.
        """
        self._server, self._seconds, self._ask, self._away = server, seconds, ask, away
        self._known: Known[V] = Known()
        self._asked = 0.0
        self._asking: asyncio.Task[None] | None = None

    async def get(self) -> Known[V]:
        """Return the value, or the last one with the reason why there is no newer one."""
        task = self._asking
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            is_known = self._known.read > 0 or self._known.problem is not None
            if is_known and time.monotonic() - self._asked <= self._seconds:
                return self._known
            self._asked = time.monotonic()
            task = self._asking = asyncio.create_task(self._read())
        left = self._asked + _PATIENCE_SECONDS - time.monotonic()
        await asyncio.wait({task}, timeout=max(left, 0.0))
        if task.done():
            return self._known
        waited = time.monotonic() - self._asked
        return replace(self._known, problem=f"{self._server} has not answered for {waited:.1f} s")

    async def _read(self) -> None:
        try:
            self._known = Known(await self._ask(), time.time())
        except self._away as error:
            self._known = replace(self._known, problem=str(error))

    def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()
