"""Fetch one address: follow redirects, and repeat requests after temporary failures."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import BinaryIO, cast

import httpx

from shardmill.beam_jobs.config import UrlsConfig
from shardmill.beam_jobs.reasons import BAD_REDIRECT, UNPROCESSABLE, UNREACHABLE
from shardmill.beam_jobs.sources.fetching.addresses import Address, BadAddress, public_uri, read_address
from shardmill.beam_jobs.sources.fetching.client import (
    Client,
    FetchFault,
    Moved,
    NotModified,
    Received,
    Validators,
    unreachable,
)
from shardmill.beam_jobs.sources.fetching.store import Answer
from shardmill.infra.errors import ShardmillError

_IN_MEMORY_BYTES = 1 << 20  # largest image received in memory; larger ones go to a temporary file

Keep = Callable[[str, BinaryIO], Awaitable[None]]


class Fetcher:
    """Fetches addresses. Serves any number of tasks of one event loop.

    Args:
        client: sends the requests.
        settings: limits and pauses of requests.
        keep: stores the bytes of an address under its URI.
    """

    def __init__(self, client: Client, settings: UrlsConfig, keep: Keep) -> None:
        self._client = client
        self._settings = settings
        self._keep = keep
        self._at_a_time = asyncio.Semaphore(settings.connections)
        self._paces: dict[str, _HostPace] = {}

    def pace(self, host: str) -> _HostPace:
        """Return the pace of requests to a host."""
        return self._paces.setdefault(host, _HostPace(self._settings))

    async def fetch(self, address: Address, known: Answer | None = None) -> Answer:
        """Fetch an address; the bytes are kept before the answer is returned.

        Args:
            address: what to fetch.
            known: what was there before; its bytes are not fetched again if the server says that they are
                still the same.

        Returns:
            The answer; one with a reason if there is no image.
        """
        try:
            with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as content:
                return await self._repeat(address, known, cast(BinaryIO, content))
        except FetchFault as fault:
            return Answer.of_fault(address.uri, fault.reason, fault.message)
        except ShardmillError:
            raise  # the storage is at fault, not the address
        except Exception as error:  # noqa: BLE001 - whatever a server provokes in a library is a row
            message = f"a library failed on the answer: {type(error).__name__}"
            return Answer.of_fault(address.uri, UNPROCESSABLE, message)

    async def _repeat(self, address: Address, known: Answer | None, content: BinaryIO) -> Answer:
        """Follow an address, again after a pause while its fault may pass."""
        for attempt in range(self._settings.retries + 1):
            try:
                return await self._follow(address, known, content)
            except FetchFault as fault:
                pause = self._pause_after(fault, attempt)
                if pause is None or self.pace(address.host).is_given_up:
                    raise
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    def _pause_after(self, fault: FetchFault, attempt: int) -> float | None:
        """Return the seconds to wait before the next attempt, or None if there shall be none."""
        if not fault.is_repeated or attempt == self._settings.retries:
            return None
        if fault.wait_seconds is not None and fault.wait_seconds > self._settings.max_wait_seconds:
            return None
        pause = min(self._settings.max_wait_seconds, self._settings.backoff_seconds * 2.0**attempt)
        return pause * random.uniform(0.5, 1.0)  # or else all would come back at the same moment

    async def _follow(self, address: Address, known: Answer | None, content: BinaryIO) -> Answer:
        """Ask for an address and those that it redirects to."""
        url = httpx.URL(address.url)
        seen = {str(url)}
        while True:
            final = public_uri(url)
            # Validators are those of the last address of all, whose server alone knows them.
            is_known = known is not None and known.sha256 is not None and known.final_uri == final
            validators = Validators(known.etag, known.last_modified) if known and is_known else None
            reply = await self._ask(url, validators, content)
            if isinstance(reply, Received):
                await self._keep(address.uri, content)
                return Answer.of_bytes(address.uri, reply, final)
            if isinstance(reply, NotModified) and known is not None:
                return known
            if isinstance(reply, Moved):
                url = self._next_hop(url, reply.location, seen)

    async def _ask(
        self, url: httpx.URL, validators: Validators | None, content: BinaryIO
    ) -> Received | NotModified | Moved:
        """Ask once, when it is the turn of this host."""
        pace = self.pace(url.host.lower())
        async with pace.turn(), self._at_a_time:
            try:
                reply = await self._client.ask(url, validators, content)
            except FetchFault as fault:
                pace.note(has_answered=fault.reason != UNREACHABLE)
                if fault.wait_seconds is not None:
                    pace.pause(min(fault.wait_seconds, self._settings.max_wait_seconds))
                raise
            pace.note(has_answered=True)
            return reply

    def _next_hop(self, url: httpx.URL, location: str, seen: set[str]) -> httpx.URL:
        """Return the address that a redirect leads to, and add it to those seen."""
        try:
            following = read_address(str(url.join(location)) if location else "")
        except (BadAddress, httpx.InvalidURL, ValueError) as error:
            message = "it redirects to something that is no http or https address"
            raise FetchFault(BAD_REDIRECT, message) from error
        if following.url in seen:
            raise FetchFault(BAD_REDIRECT, "it redirects in a circle")
        if len(seen) > self._settings.max_redirects:
            raise FetchFault(BAD_REDIRECT, f"it redirects more than {self._settings.max_redirects} times")
        seen.add(following.url)
        return httpx.URL(following.url)


# After so many requests in a row without an answer, the other addresses of the host are not tried.
GIVEN_UP_AFTER = 20


class _HostPace:
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
