"""An HTTP server on this machine that passes requests on to another one, and may change them."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length"}

Headers = list[tuple[str, str]]
Answer = tuple[int, Headers, bytes]  # status, headers, body


class Forwarder(BaseHTTPRequestHandler):
    """Passes requests on to ``upstream_port``. Subclasses say in ``answer`` what becomes of them."""

    protocol_version = "HTTP/1.1"
    upstream_port: int

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""

    def answer(self) -> None:
        """Answer a request."""
        status, headers, body = self.ask(self.command, self.path, self.headers.items(), self.read_body())
        self.send(status, headers, body, self.length_of(headers, body))

    def read_body(self) -> bytes:
        """The body of the request."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def ask(self, method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> Answer:
        """The answer of the other server."""
        upstream = http.client.HTTPConnection("127.0.0.1", self.upstream_port, timeout=60)
        try:
            upstream.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                if name.lower() not in {*_HOP_HEADERS, "expect"}:
                    upstream.putheader(name, value)
            upstream.putheader("Content-Length", str(len(body)))
            upstream.endheaders(body)
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    @staticmethod
    def length_of(headers: Headers, body: bytes) -> int:
        """The length that an answer names, or has."""
        return next((int(value) for name, value in headers if name.lower() == "content-length"), len(body))

    def send(self, status: int, headers: Headers, body: bytes, length: int) -> None:
        """Send an answer that claims to have ``length`` bytes."""
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

    def _answer(self) -> None:
        self.answer()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that clients or faults broke."""


@contextlib.contextmanager
def forwarding(handler: type[Forwarder], upstream_port: int, **attributes: Any) -> Iterator[int]:
    """Run a server that answers with ``handler``; its port."""
    bound = type("_BoundHandler", (handler,), {"upstream_port": upstream_port, **attributes})
    server = _Server(("127.0.0.1", 0), bound)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
