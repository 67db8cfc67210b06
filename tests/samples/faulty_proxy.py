"""An HTTP proxy before an object store that breaks a share of the requests, as networks and stores do."""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.samples.forwarding import Answer, Forwarder, Headers, forwarding

FAULTS = ("500", "503", "reset", "cut", "lost")
ALL_FAULTS = (*FAULTS, "slow", "stale")
_STALE_SECONDS = 2.0
_SLOW_SECONDS = 1.0


@dataclass
class FaultyProxy:
    """The faults that the proxy injects; may be changed while it runs.

    Attributes:
        upstream_port: port of the store, on 127.0.0.1.
        port: port of the proxy, on 127.0.0.1.
        share: share of the requests that meet a fault, 0 to 1.
        kinds: faults to choose from. A number: the store is not asked, and this HTTP status is the answer.
            reset: the store is not asked, and the connection is reset. cut: the body of the answer ends half
            way. lost: the store does what it was asked, and the connection is reset in place of its answer.
            stall: nothing is answered. slow: the second half of the answer comes a second late. stale: a
            listing is answered as the same request was answered before, up to 2 seconds ago.
        methods: HTTP methods that meet faults; empty for all.
        most: how many faults of a kind to inject at most.
        delay_seconds: pause before every request, as of a long way to the store.
        alter_request: changes the headers of every request on its way to the store.
        injected: fault -> how often it happened.
    """

    upstream_port: int
    port: int = 0
    share: float = 0.0
    kinds: tuple[str, ...] = FAULTS
    methods: frozenset[str] = frozenset()
    most: int = 1 << 30
    delay_seconds: float = 0.0
    alter_request: Callable[[http.client.HTTPMessage], None] | None = None
    injected: Counter[str] = field(default_factory=Counter)
    _listings: dict[str, tuple[float, Answer]] = field(default_factory=dict)
    _random: random.Random = field(default_factory=lambda: random.Random(7))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next_fault(self, method: str) -> str | None:
        """The fault that the next request meets, or None."""
        with self._lock:
            if (self.methods and method not in self.methods) or self._random.random() >= self.share:
                return None
            kind = self._random.choice(self.kinds)
            if self.injected[kind] >= self.most:
                return None
            self.injected[kind] += 1
            return kind

    def listing(self, path: str, answer: Answer, *, stale: bool) -> Answer:
        """Keep the answer to a listing, or return an earlier one that was kept."""
        with self._lock:
            kept_at, kept = self._listings.get(path, (0.0, answer))
            if stale and time.monotonic() - kept_at < _STALE_SECONDS:
                return kept
            self._listings[path] = (time.monotonic(), answer)
            return answer


class _Handler(Forwarder):
    proxy: FaultyProxy

    def answer(self) -> None:
        """Pass the request on, or do what the next fault says."""
        body = self.read_body()
        time.sleep(self.proxy.delay_seconds)
        if self.proxy.alter_request is not None:
            self.proxy.alter_request(self.headers)
        fault = self.proxy.next_fault(self.command)
        if fault == "stall":
            self.connection.settimeout(120)
            with contextlib.suppress(OSError):
                self.connection.recv(1)  # until the client gives up
            return self._reset()
        if fault == "reset":
            return self._reset()
        if fault is not None and fault.isdecimal():
            text = b"<Error><Code>Injected</Code><Message>injected</Message></Error>"
            return self.send(int(fault), [], b"" if self.command == "HEAD" else text, len(text))
        status, headers, answer = self.ask(self.command, self.path, self.headers.items(), body)
        if fault == "lost":
            return self._reset()
        if self.command == "GET" and ("list-type=2" in self.path or "comp=list" in self.path):
            found = self.proxy.listing(self.path, (status, headers, answer), stale=fault == "stale")
            status, headers, answer = found
        length = self.length_of(headers, answer)
        if fault == "slow":
            return self._send_slowly(status, headers, answer, length)
        self.send(status, headers, answer[: len(answer) // 2] if fault == "cut" else answer, length)
        if fault == "cut" and answer:
            self._reset()
        return None

    def _send_slowly(self, status: int, headers: Headers, answer: bytes, length: int) -> None:
        half = len(answer) // 2
        self.send(status, headers, answer[:half], length)
        time.sleep(_SLOW_SECONDS)
        if self.command != "HEAD":
            self.wfile.write(answer[half:])

    def _reset(self) -> None:
        self.close_connection = True
        # With no time to linger, closing sends RST.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.shutdown(socket.SHUT_RD)
        self.connection.close()


@contextlib.contextmanager
def faulty_proxy(upstream_port: int) -> Iterator[FaultyProxy]:
    """A running proxy that injects nothing until ``share`` is set."""
    proxy = FaultyProxy(upstream_port)
    with forwarding(_Handler, upstream_port, proxy=proxy) as proxy.port:
        yield proxy
