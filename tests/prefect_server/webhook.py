"""A web hook and a mail server of this machine, which keep what they are sent."""

from __future__ import annotations

import contextlib
import http.server
import socketserver
import threading
from collections.abc import Iterator
from typing import Any


class Hook(http.server.BaseHTTPRequestHandler):
    """A web hook that keeps the bodies of its requests."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.heard.append((self.headers["Content-Type"], body.decode()))  # type: ignore[attr-defined]
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


class Mail(socketserver.StreamRequestHandler):
    """A mail server that knows just enough of SMTP to receive a message."""

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        message: list[str] | None = None
        for raw in self.rfile:
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            if message is None:
                word = line.partition(" ")[0].upper()
                message = [] if word == "DATA" else None
                self.wfile.write({"DATA": b"354 go\r\n", "QUIT": b"221 bye\r\n"}.get(word, b"250 well\r\n"))
                if word == "QUIT":
                    return
            elif line == ".":
                self.server.heard.append("\n".join(message))  # type: ignore[attr-defined]
                message = None
                self.wfile.write(b"250 kept\r\n")
            else:
                message.append(line)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@contextlib.contextmanager
def listening(
    handler: type[socketserver.BaseRequestHandler], port: int = 0
) -> Iterator[tuple[int, list[Any]]]:
    """Run a server on a port, or a free one; its port, and the list of requests that it receives."""
    with _Server(("127.0.0.1", port), handler) as server:
        server.heard = heard = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1], heard
        finally:
            server.shutdown()
            thread.join()
