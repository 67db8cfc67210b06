"""Send one request for an image, and interpret the answer.

The request has no cookies and no credentials but those in the address, goes through no proxy, and asks for
the bytes as they are. The answer is read in small pieces, and no further than is allowed: what a header says
of its length is believed only where it is too long.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import BinaryIO

import httpcore
import httpx

from shardmill.beam_jobs.config import UrlsConfig
from shardmill.beam_jobs.reasons import (
    ACCESS_DENIED,
    BROKEN_OFF,
    NOT_AN_IMAGE,
    NOT_FOUND,
    OPTED_OUT,
    PRIVATE_HOST,
    SERVER_ERROR,
    TIMED_OUT,
    TOO_LARGE,
    TOO_MANY_REQUESTS,
    UNREACHABLE,
)
from shardmill.beam_jobs.sources.fetching.network import CheckedNetwork, PrivateAddress, Resolve, UnknownHost
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.infra import release

# Reasons that may be gone the next time, so that a run which is started again asks again.
MAY_PASS = frozenset({UNREACHABLE, TIMED_OUT, BROKEN_OFF, TOO_MANY_REQUESTS, SERVER_ERROR})

_GONE = (404, 410)
_DENIED = (401, 402, 403, 407, 451)
_REPEATED = (408, 425, 429)  # and 5xx, but for those that say that it will never work
_NEVER = (501, 505, 506, 508, 510, 511)


class FetchFault(SourceFault):
    """An address gives no image.

    Attributes:
        reason, message: of the row.
        is_repeated: whether the request is repeated after a pause.
        wait_seconds: how long the server asks to wait before the next request, or None.
    """

    def __init__(
        self, reason: str, message: str, *, is_repeated: bool = False, wait_seconds: float | None = None
    ) -> None:
        super().__init__(reason, message)
        self.is_repeated = is_repeated
        self.wait_seconds = wait_seconds


def _fault_of_status(status: int, wait_seconds: float | None) -> FetchFault:
    """Return the fault that a status other than success and redirection means.

    Args:
        status: HTTP status of the response.
        wait_seconds: its Retry-After, or None.
    """
    message = f"the server answers with status {status}"
    if status in _GONE:
        return FetchFault(NOT_FOUND, message)
    if status in _DENIED:
        return FetchFault(ACCESS_DENIED, message)
    is_repeated = status in _REPEATED or (500 <= status < 600 and status not in _NEVER)
    reason = TOO_MANY_REQUESTS if status == 429 else SERVER_ERROR
    return FetchFault(reason, message, is_repeated=is_repeated, wait_seconds=wait_seconds)


def unreachable(message: str = "its host cannot be reached, or does not answer") -> FetchFault:
    """Return the fault of a host that does not answer; the request is repeated."""
    return FetchFault(UNREACHABLE, message, is_repeated=True)


_IDLE_SECONDS = 15.0  # an unused connection is closed
_REDIRECTS = (301, 302, 303, 307, 308)
_WITH_IMAGE = (200, 203)
_SHORT_BYTES = 1 << 16  # an error page up to this size is read: that costs less than another connection
_NO_IMAGE = ("text/", "application/json", "application/xhtml+xml", "application/xml")


@dataclass(frozen=True, slots=True)
class Validators:
    """The validators that a server sent with the bytes (entity tag, time of change); both may be None."""

    etag: str | None
    last_modified: str | None

    def headers(self) -> dict[str, str]:
        """Return the headers that ask for the bytes only if they have changed."""
        found = {"If-None-Match": self.etag, "If-Modified-Since": self.last_modified}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Received:
    """The bytes of an image have come: their number, digest (32 bytes) and validators."""

    size_bytes: int
    sha256: bytes
    validators: Validators


@dataclass(frozen=True, slots=True)
class NotModified:
    """The bytes are those that the validators are of."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The image is behind another address, which may be relative to the one that was asked for."""

    location: str


Reply = Received | NotModified | Moved


class Client:
    """Sends requests. Serves any number of tasks of one event loop.

    Args:
        settings: limits, and what is honoured.
        max_bytes: most bytes of an image.
        resolve: finds the addresses of a host; None for the system's way.
    """

    def __init__(self, settings: UrlsConfig, max_bytes: int, resolve: Resolve | None = None) -> None:
        self._settings = settings
        self._max_bytes = max_bytes
        self._resolve = resolve
        self._honoured = frozenset(directive.lower() for directive in settings.opt_out)
        contact = f" (+{settings.contact})" if settings.contact else ""
        self._headers = {
            "User-Agent": f"Shardmill/{release()}{contact}",
            "Accept": "image/*,*/*;q=0.5",
            "Accept-Encoding": "identity",
        }
        self._timeouts = {
            "connect": settings.connect_seconds,
            "read": settings.read_seconds,
            "write": settings.read_seconds,
            "pool": None,
        }

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Keep connections open while the block runs."""
        async with httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(),
            max_connections=self._settings.connections,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=CheckedNetwork(
                allow_private=self._settings.allow_private_hosts, resolve=self._resolve
            ),
        ) as self._pool:
            yield

    async def ask(self, url: httpx.URL, known: Validators | None, content: BinaryIO) -> Reply:
        """Ask for an image.

        Args:
            url: the address.
            known: validators of the bytes that are there already, or None.
            content: receives the bytes; what it held is removed.

        Raises:
            FetchFault: there is no image, or none that may be used.
        """
        has_answered = False
        headers = self._headers | (known.headers() if known else {})
        try:
            async with (
                asyncio.timeout(self._settings.total_seconds),
                self._pool.stream(
                    "GET", str(url), headers=list(headers.items()), extensions={"timeout": self._timeouts}
                ) as response,
            ):
                has_answered = True
                return await self._understand(response, known, content)
        except (TimeoutError, httpcore.TimeoutException) as error:
            if not has_answered:
                raise unreachable() from error
            message = "the server does not send the whole image in time"
            raise FetchFault(TIMED_OUT, message, is_repeated=True) from error
        except PrivateAddress as error:
            raise FetchFault(PRIVATE_HOST, "its host has no public address") from error
        except UnknownHost as error:
            raise FetchFault(unreachable().reason, "there is no host of this name") from error
        except httpcore.ConnectError as error:
            raise unreachable() from error
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            message = "the connection ends early, or the answer is no valid HTTP"
            raise FetchFault(BROKEN_OFF, message, is_repeated=True) from error

    async def _understand(
        self, response: httpcore.Response, known: Validators | None, content: BinaryIO
    ) -> Reply:
        pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers]
        headers = {name.lower(): value.strip() for name, value in pairs}
        status = response.status
        if status not in _WITH_IMAGE:
            await _read_to_the_end(response, headers)
        if status in _REDIRECTS or status in (*_WITH_IMAGE, 304):
            if by := opted_out_by(pairs, self._honoured):
                raise FetchFault(OPTED_OUT, f"the server reserves it: {by}")
            if status == 304 and known is not None and known.headers():
                return NotModified()
            if status in _REDIRECTS:
                return Moved(headers.get("location", ""))
            if status != 304:
                return await self._receive(response, headers, content)
        raise _fault_of_status(status, retry_after(headers.get("retry-after")))

    async def _receive(
        self, response: httpcore.Response, headers: dict[str, str], content: BinaryIO
    ) -> Received:
        """Read the bytes of an image into ``content``."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind.startswith(_NO_IMAGE):
            raise FetchFault(NOT_AN_IMAGE, f"the server sends {kind[:60]}, no image")
        if (encoding := headers.get("content-encoding", "identity").lower()) != "identity":
            raise FetchFault(NOT_AN_IMAGE, f"the server sends it compressed ({encoding[:60]}), unasked")
        length = headers.get("content-length", "")
        too_large = FetchFault(TOO_LARGE, f"more than the {self._max_bytes:,} bytes that are allowed")
        if length.isdecimal() and int(length) > self._max_bytes:
            raise too_large
        content.seek(0)
        content.truncate()
        digest, size_bytes = hashlib.sha256(), 0
        async for part in response.aiter_stream():
            size_bytes += len(part)
            if size_bytes > self._max_bytes:
                raise too_large
            digest.update(part)
            content.write(part)
        validators = Validators(headers.get("etag"), headers.get("last-modified"))
        return Received(size_bytes, digest.digest(), validators)


async def _read_to_the_end(response: httpcore.Response, headers: dict[str, str]) -> None:
    """Read an answer without an image if it is short, so that its connection can serve the next request."""
    length = headers.get("content-length", "")
    if response.status == 304 or (length.isdecimal() and int(length) <= _SHORT_BYTES):
        async for _ in response.aiter_stream():
            pass


def retry_after(value: str | None) -> float | None:
    """Return the seconds that a header Retry-After asks to wait: a number of them, or until a date."""
    if value is None:
        return None
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


ROBOT = "shardmill"  # our name in headers that are for some robots only
TDM = "tdm-reservation"

# Directives that have a value behind a colon, and so look like the name of a robot.
_WITH_VALUE = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})


def opted_out_by(headers: Iterable[tuple[str, str]], honoured: Collection[str]) -> str | None:
    """Return the header that reserves a response, for people, or None if none does.

    Args:
        headers: (name, value) of the response.
        honoured: directives in lower case; ``tdm-reservation`` for that header.
    """
    for name, value in headers:
        if name.lower() == "x-robots-tag":
            for directive in _directives(value):
                if directive in honoured:
                    return f"X-Robots-Tag: {directive}"
        elif name.lower() == TDM and TDM in honoured and value.strip() == "1":
            return "TDM-Reservation: 1"
    return None


def _directives(value: str) -> Iterable[str]:
    """Yield the directives of a header that are for all robots or for this one, in lower case."""
    is_for_us = True
    for part in value.lower().split(","):
        name, colon, rest = part.partition(":")
        if colon and name.strip() not in _WITH_VALUE:
            is_for_us, part = name.strip() == ROBOT, rest  # and for all directives behind it
        if is_for_us:
            yield part.strip()
