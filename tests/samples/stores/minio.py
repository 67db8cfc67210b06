"""MinIO, a server program of S3, with one bucket."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs

from shardmill.infra.processes.ports import free_port
from tests.samples.stores.store_program import program_of, serving

USER, PASSWORD = "minio-of-tests", "password-of-tests"


@contextlib.contextmanager
def minio(folder: Path) -> Iterator[int]:
    """Run the server, with the bucket ``bucket``; its port. Skip the test where it is not installed."""
    program = program_of("MINIO", "minio", "go install github.com/minio/minio@latest")
    port = free_port()
    command = [program, "server", "--quiet", "--address", f"127.0.0.1:{port}", str(folder / "data")]

    def client() -> pafs.S3FileSystem:
        return pafs.S3FileSystem(
            access_key=USER,
            secret_key=PASSWORD,
            endpoint_override=f"127.0.0.1:{port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )

    with serving(command, folder, client, {"MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD}):
        yield port


def minio_location(port: int, folder: str) -> str:
    """The URI of a folder of the bucket, with its keys."""
    options = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
    return f"s3://{USER}:{PASSWORD}@bucket/{folder}?{options}"
