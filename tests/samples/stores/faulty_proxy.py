"""An HTTP proxy before an object store that breaks a share of the requests, as networks and stores do."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.samples.stores.forwarding import Answer, Forwarder, Headers, forwarding

FAULTS = ("500", "503", "reset", "cut", "lost")
ALL_FAULTS = (*FAULTS, "slow", "stale")
_STALE_SECONDS = 2.0
_SLOW_SECONDS = 1.0
_LISTING = re.compile(r"list-type=2|comp=list|/o\?")  # of S3, Azure and Google
_XML = '<?xml version="1.0" encoding="UTF-8"?>'


@dataclass
class FaultyProxy:
    """The faults that the proxy injects; may be changed while it runs.

    Attributes:
        upstream_port: port of the store, on 127.0.0.1.
        port: port of the proxy, on 127.0.0.1.
        share: share of the requests that meet a fault, 0 to 1.
        kinds: faults to choose from. A number: the store is not asked, and this HTTP status is the answer;
            after it may stand the code of the error, as in "400 RequestTimeout". reset: the store is not
            asked, and the connection is reset. cut: the body of the answer ends half way. lost: the store
            does what it was asked, and the connection is reset in place of its answer. stall: nothing is
            answered. slow: the second half of the answer comes a second late. stale: a listing is answered
            as the same request was answered before, up to 2 seconds ago.
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
        if fault is not None and fault[0].isdecimal():
            code = fault.partition(" ")[2] or "Injected"
            text = f"{_XML}<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
            return self.send(int(fault[:3]), [], b"" if self.command == "HEAD" else text, len(text))
        status, headers, answer = self.ask(self.command, self.path, self.headers.items(), body)
        if fault == "lost":
            return self._reset()
        if self.command == "GET" and _LISTING.search(self.path):
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


@dataclass
class ProxyProcess:
    """A proxy in a process of its own.

    Arrow's client for Google's store waits for some answers while it holds the interpreter's lock, so none
    can come from a thread of the same process.

    Attributes:
        port: port of the proxy, on 127.0.0.1.
        injected: fault -> how often it happened; known at the end.
    """

    port: int
    injected: dict[str, int] = field(default_factory=dict)


@contextlib.contextmanager
def faulty_proxy_process(upstream_port: int, share: float, kinds: tuple[str, ...]) -> Iterator[ProxyProcess]:
    """A running proxy in a process of its own; for its arguments see ``FaultyProxy``."""
    command = [
        sys.executable,
        "-m",
        "tests.samples.stores.faulty_proxy",
        str(upstream_port),
        str(share),
        *kinds,
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        proxy = ProxyProcess(int(process.stdout.readline()))
        yield proxy
        said, _ = process.communicate()  # the end of its input ends it
        proxy.injected.update(json.loads(said))


def main() -> None:
    """Serve until the end of the input, then print what was injected."""
    upstream_port, share, *kinds = sys.argv[1:]
    with faulty_proxy(int(upstream_port)) as proxy:
        proxy.share, proxy.kinds = float(share), tuple(kinds)
        print(proxy.port, flush=True)
        sys.stdin.read()
    print(json.dumps(proxy.injected))


if __name__ == "__main__":
    main()
