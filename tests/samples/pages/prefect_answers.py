"""A server that gives the answers of Prefect's API that a test wants, or none."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextlib.contextmanager
def answering(answers: Mapping[str, Any] | None) -> Iterator[str]:
    """Serve what a path answers, else an empty list; None: it is healthy and silent. Yield its URL."""
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path in ("/api/health", "/api/hello"):
                self._answer(True)
            elif answers is None:
                ended.wait()
            else:
                self._answer(None)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if answers is None:
                ended.wait()
            else:
                self._answer(answers.get(self.path.removeprefix("/api"), []))

        def _answer(self, value: object) -> None:
            data = json.dumps(value).encode()
            self.send_response(200 if value is not None else 404)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/api"
        finally:
            ended.set()
            server.shutdown()
            thread.join()
