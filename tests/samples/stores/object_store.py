"""A real S3 endpoint on this machine (moto behind a threaded HTTP server), with faults on request."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from shardmill.infra.dataset.version import DatasetVersion

KEY, SECRET = "AKIAEXAMPLE", "top-secret-of-tests"


@dataclass
class Fault:
    """Faults of some requests.

    Attributes:
        matches: part of the path of the requests it happens to.
        status: the answer, in place of the object; None: the object.
        alter: what becomes of the object's bytes.
        seconds: of delay.
        times: how often it happens.
    """

    matches: str
    status: int | None = None
    alter: Callable[[bytes], bytes] | None = None
    seconds: float = 0.0
    times: int = 1 << 30


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


@dataclass
class ObjectStore:
    """One bucket of a running server.

    Attributes:
        bucket: its name.
        port: of the server, on 127.0.0.1.
        gets: paths of the objects that were asked for, one line per request.
        faults: what happens to requests from now on.
    """

    bucket: str
    port: int
    gets: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    _writing: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def location(self, folder: str = "", *, credentials: str = "") -> str:
        """The URI of a folder of the bucket."""
        place = f"{self.bucket}/{folder}".rstrip("/")
        return (
            f"s3://{credentials}{place}?endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"
        )

    def filesystem(self) -> pafs.S3FileSystem:
        """Direct access."""
        return pafs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
            # The machine may be busy; by default a request ends after 3 s.
            request_timeout=120,
            connect_timeout=120,
        )

    def all_keys(self, folder: str) -> list[str]:
        """Names of all objects below a folder of the bucket, relative to the bucket, sorted."""
        selector = pafs.FileSelector(
            f"{self.bucket}/{folder}".rstrip("/"), allow_not_found=True, recursive=True
        )
        infos = self.filesystem().get_file_info(selector)
        skip = len(self.bucket) + 1
        return sorted(info.path[skip:] for info in infos if info.type == pafs.FileType.File)

    def upload(self, root: Path, folder: str = "") -> None:
        """Copy all files below a local folder."""
        filesystem = self.filesystem()
        for path in sorted(root.rglob("*")):
            if path.is_file():
                key = "/".join(part for part in (self.bucket, folder, str(path.relative_to(root))) if part)
                with filesystem.open_output_stream(key, compression=None) as stream:
                    stream.write(path.read_bytes())

    def _answer(self, environ: dict[str, Any], start: Any, app: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] == "GET" and path.count("/") > 1:
            self.gets.append(path)
            for fault in self.faults:
                if fault.matches in path and fault.times > 0:
                    fault.times -= 1
                    return _faulty(fault, environ, start, app)
        # moto checks the condition of a write and then writes, so that two threads may both meet it.
        with self._writing if environ["REQUEST_METHOD"] == "PUT" else contextlib.nullcontext():
            answer: Iterable[bytes] = app(environ, start)
        return answer


def _faulty(fault: Fault, environ: dict[str, Any], start: Any, app: Any) -> Iterable[bytes]:
    time.sleep(fault.seconds)
    if fault.status is not None:
        code = "AccessDenied" if fault.status == 403 else "SlowDown"
        body = f"<Error><Code>{code}</Code><Message>a fault of the test</Message></Error>".encode()
        start(f"{fault.status} Fault", [("Content-Length", str(len(body)))])
        return [body]
    body = b"".join(app(environ, start))
    return [fault.alter(body) if fault.alter else body]


@contextlib.contextmanager
def serve(bucket: str) -> Iterator[ObjectStore]:
    """A running server with one empty bucket, until the caller goes on."""
    store = ObjectStore(bucket, 0)
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server(
        "127.0.0.1",
        0,
        lambda environ, start: store._answer(environ, start, app),
        threaded=True,
        request_handler=_Quiet,
    )
    store.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        store.filesystem().create_dir(bucket)
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def serve_with_credentials(bucket: str) -> Iterator[ObjectStore]:
    """A running server as of ``serve``, while the environment has the credentials for it."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_EC2_METADATA_DISABLED", "true")
        environment.setenv("AWS_ACCESS_KEY_ID", KEY)
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        with serve(bucket) as running:
            yield running


@contextlib.contextmanager
def serve_version(version: DatasetVersion, bucket: str) -> Iterator[ObjectStore]:
    """A server whose bucket holds all of a version's dataset in ``root/set``, and credentials to read it."""
    with serve_with_credentials(bucket) as running:
        running.upload(Path(version.storage.uri), "root/set")
        yield running
