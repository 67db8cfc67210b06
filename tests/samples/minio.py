"""MinIO, a server program of S3, with one bucket."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from tests.samples.ports import free_port

USER, PASSWORD = "minio-of-tests", "password-of-tests"


@contextlib.contextmanager
def minio(folder: Path) -> Iterator[int]:
    """Run the server, with the bucket ``bucket``; its port. Skip the test where it is not installed."""
    program = shutil.which(os.environ.get("MINIO", "minio"))
    if program is None:
        pytest.skip("no minio: `go install github.com/minio/minio@latest`, or name the program in $MINIO")
    port = free_port()
    environment = os.environ | {"MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD}
    log = (folder / "log").open("wb")
    command = [program, "server", "--quiet", "--address", f"127.0.0.1:{port}", str(folder / "data")]
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        _make_bucket(port, folder / "log")
        yield port
    finally:
        server.terminate()
        server.wait(timeout=30)
        log.close()


def _make_bucket(port: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            pafs.S3FileSystem(
                access_key=USER,
                secret_key=PASSWORD,
                endpoint_override=f"127.0.0.1:{port}",
                scheme="http",
                region="us-east-1",
                allow_bucket_creation=True,
            ).create_dir("bucket")
        except OSError as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"minio does not start: {log.read_text()}") from error
            time.sleep(0.5)
        else:
            return


def minio_location(port: int, folder: str) -> str:
    """The URI of a folder of the bucket, with its keys."""
    options = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
    return f"s3://{USER}:{PASSWORD}@bucket/{folder}?{options}"
