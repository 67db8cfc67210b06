"""fake-gcs-server, a server program of Google Cloud Storage, with one bucket.

It has conditional writes in its JSON interface alone; ``google_xml`` translates for writers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs

from shardmill.infra.processes.ports import free_port
from tests.samples.stores.google_xml import xml_interface
from tests.samples.stores.store_program import program_of, serving


@contextlib.contextmanager
def fake_google(folder: Path) -> Iterator[int]:
    """Run the server, with the bucket ``bucket``; its port. Skip the test where it is not installed."""
    install = "go install github.com/fsouza/fake-gcs-server@v1.52.2"
    program = program_of("FAKE_GCS_SERVER", "fake-gcs-server", install)
    port = free_port()
    address = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    address += ["-public-host", f"127.0.0.1:{port}", "-external-url", f"http://127.0.0.1:{port}"]

    def client() -> pafs.GcsFileSystem:
        return pafs.GcsFileSystem(
            anonymous=True, endpoint_override=f"127.0.0.1:{port}", scheme="http", project_id="p"
        )

    with serving([program, "-backend", "memory", *address], folder, client):
        yield port


@contextlib.contextmanager
def writable_google(folder: Path) -> Iterator[int]:
    """Run the server; the port of an interface with conditional writes before it."""
    with fake_google(folder) as port, xml_interface(port) as own:
        yield own


def google_location(port: int, folder: str) -> str:
    """The URI of a folder of the bucket."""
    options = f"endpoint_override=127.0.0.1:{port}&scheme=http&retry_limit_seconds=10"
    return f"gs://anonymous@bucket/{folder}?{options}"
