"""An HTTP proxy before an object store that breaks a share of the requests, as networks and stores do."""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULTS = ("500", "503", "reset", "cut", "lost")
_HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass
class FaultyProxy:
    """What the proxy does to requests; may be changed while it runs.

    Attributes:
        upstream_port: port of the store, on 127.0.0.1.
        port: port of the proxy, on 127.0.0.1.
        share: share of the requests that meet a fault, 0 to 1.
        kinds: faults to choose from. A number: the store is not asked, and this HTTP status is the answer.
            reset: the store is not asked, and the connection is reset. cut: the body of the answer ends half
            way. lost: the store does what it was asked, and the connection is reset in place of its answer.
            stall: nothing is answered.
        methods: HTTP methods that meet faults; empty for all.
        most: how many faults of a kind to inject at most.
        alter_request: changes the headers of every request on its way to the store.
        injected: fault -> how often it happened.
    """

    upstream_port: int
    port: int = 0
    share: float = 0.0
    kinds: tuple[str, ...] = FAULTS
    methods: frozenset[str] = frozenset()
    most: int = 1 << 30
    alter_request: Callable[[http.client.HTTPMessage], None] | None = None
    injected: Counter[str] = field(default_factory=Counter)
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


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultyProxy

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""

    def _forward(self) -> None:
        body = self._body()
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
            return self._send(int(fault), [], b"" if self.command == "HEAD" else text, len(text))
        status, headers, answer = self._ask(body)
        if fault == "lost":
            return self._reset()
        length = next(
            (int(value) for name, value in headers if name.lower() == "content-length"), len(answer)
        )
        self._send(status, headers, answer[: len(answer) // 2] if fault == "cut" else answer, length)
        if fault == "cut" and answer:
            self._reset()
        return None

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection("127.0.0.1", self.proxy.upstream_port, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in {*_HOP_HEADERS, "expect"}:
                    upstream.putheader(name, value)
            upstream.putheader("Content-Length", str(len(body)))
            upstream.endheaders(body)
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    def _send(self, status: int, headers: list[tuple[str, str]], body: bytes, length: int) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP_HEADERS:
                self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def _reset(self) -> None:
        self.close_connection = True
        # With no time to linger, closing sends RST.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.shutdown(socket.SHUT_RD)
        self.connection.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that clients or faults broke."""


@contextlib.contextmanager
def faulty_proxy(upstream_port: int) -> Iterator[FaultyProxy]:
    """A running proxy that injects nothing until ``share`` is set."""
    proxy = FaultyProxy(upstream_port)
    handler = type("_BoundHandler", (_Handler,), {"proxy": proxy})
    server = _Server(("127.0.0.1", 0), handler)
    proxy.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
