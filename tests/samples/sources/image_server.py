"""An HTTP server of this machine that gives images, and every kind of trouble that real servers give."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Step = Callable[["Handler"], None]
Headers = Mapping[str, str]


class ImageServer:
    """Answers each path as it was told to.

    Attributes:
        url: of the server, without a slash at its end.
        asked: (path, headers in lower case) of every request, in order.
        most_at_a_time: most requests that were answered at the same moment.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.times: list[float] = []
        self.most_at_a_time = 0
        self.ended = threading.Event()
        self._steps: dict[str, list[Step]] = {}
        self._lock = threading.Lock()
        self._at_a_time = 0

    def give(self, path: str, *steps: Step) -> str:
        """Answer requests for a path by one step after the other, the last one for ever; returns its URL."""
        self._steps[path] = list(steps)
        return f"{self.url}{path}"

    def counts(self) -> Counter[str]:
        """The number of requests for each path."""
        return Counter(path for path, _ in self.asked)

    def forget(self) -> None:
        """Forget the requests so far."""
        self.asked.clear()

    @contextlib.contextmanager
    def answering(self, path: str, headers: dict[str, str]) -> Iterator[Step]:
        """The step that answers a request."""
        with self._lock:
            self.asked.append((path, headers))
            self.times.append(time.monotonic())
            steps = self._steps.get(path, [status(404)])
            step = steps.pop(0) if len(steps) > 1 else steps[0]
            self._at_a_time += 1
            self.most_at_a_time = max(self.most_at_a_time, self._at_a_time)
        try:
            yield step
        finally:
            with self._lock:
                self._at_a_time -= 1


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    images: ImageServer

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.images.answering(self.path, headers) as step, contextlib.suppress(OSError):
            step(self)

    def send(self, code: int, headers: Headers, content: bytes = b"") -> None:
        self.send_response(code)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"Content-Length": str(len(content)), **given}.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def image(content: bytes, **headers: str) -> Step:
    """Send an image."""
    return lambda handler: handler.send(200, {"Content-Type": "image/jpeg", **headers}, content)


def status(code: int, **headers: str) -> Step:
    """Send a status and a short page."""
    return lambda handler: handler.send(code, headers, b"" if code == 304 else b"a page")


def redirect(to: str, code: int = 302) -> Step:
    return status(code, Location=to)


def versioned(content: bytes, etag: str, **headers: str) -> Step:
    """Send an image, or 304 to those who have it."""

    def answer(handler: Handler) -> None:
        if handler.headers.get("If-None-Match") == etag:
            handler.send(304, {"ETag": etag, **headers})
        else:
            handler.send(200, {"ETag": etag, **headers}, content)

    return answer


def cut_off(content: bytes, length: int) -> Step:
    """Promise ``length`` bytes, send fewer and hang up."""

    def answer(handler: Handler) -> None:
        handler.send(200, {"Content-Length": str(length)}, content)
        handler.close_connection = True

    return answer


def endless(seconds_apart: float = 0.0) -> Step:
    """Send pieces of a body that never ends."""

    def answer(handler: Handler) -> None:
        handler.send(200, {"Transfer-Encoding": "chunked", "Content-Length": ""})
        while not handler.images.ended.wait(seconds_apart):
            handler.wfile.write(b"1000\r\n" + bytes(4096) + b"\r\n")

    return answer


def silent() -> Step:
    """Never answer."""
    return lambda handler: handler.images.ended.wait() and None


def slow(step: Step, seconds: float) -> Step:
    """Answer after a while."""

    def answer(handler: Handler) -> None:
        handler.images.ended.wait(seconds)
        step(handler)

    return answer


@contextlib.contextmanager
def running_server() -> Iterator[ImageServer]:
    """Run a server until the block ends."""

    class BoundHandler(Handler):
        pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128  # clients whose connection waits

    with Server(("127.0.0.1", 0), BoundHandler) as server:
        images = ImageServer(server.server_port)
        BoundHandler.images = images
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield images
        finally:
            images.ended.set()
            server.shutdown()
            thread.join()
