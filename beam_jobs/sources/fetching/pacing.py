"""Pace the requests to each host, and give up a host that does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shardmill.beam_jobs.config import UrlsConfig
from shardmill.beam_jobs.sources.fetching.faults import unreachable

# After so many requests in a row without an answer, the other addresses of the host are not tried.
GIVEN_UP_AFTER = 20


class HostPace:
    """Limit the requests to one host: how many at a time, how close together, none while it asks to wait."""

    def __init__(self, settings: UrlsConfig) -> None:
        self._turns = asyncio.Semaphore(settings.connections_per_host)
        self._delay_seconds = settings.delay_seconds
        self._next = 0.0  # time of the event loop at which the next request may begin
        self._num_unanswered = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until a request may begin; the block is the request.

        Raises:
            FetchFault: the host is given up.
        """
        loop = asyncio.get_running_loop()
        async with self._turns:
            while (wait := self._next - loop.time()) > 0:
                await asyncio.sleep(wait)
            if self.is_given_up:
                raise unreachable()
            self._next = loop.time() + self._delay_seconds
            yield

    def pause(self, seconds: float) -> None:
        """Begin no request to this host for some time."""
        self._next = max(self._next, asyncio.get_running_loop().time() + seconds)

    def note(self, *, has_answered: bool) -> None:
        """Note whether the host answered a request."""
        self._num_unanswered = 0 if has_answered else self._num_unanswered + 1

    @property
    def is_given_up(self) -> bool:
        """Tell whether the host is not asked any more."""
        return self._num_unanswered >= GIVEN_UP_AFTER
