"""Azurite, Microsoft's server program of Azure Blob Storage, with one container."""

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

ACCOUNT = "devstoreaccount1"
# The key of every Azurite, published by Microsoft.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[int]:
    """Run the server, with the container ``bucket``; its port. Skip the test where it is not installed."""
    program = shutil.which(os.environ.get("AZURITE", "azurite-blob"))
    if program is None:
        pytest.skip("no azurite-blob: `npm install --global azurite`, or name the program in $AZURITE")
    port = free_port()
    # Clients are newer than the versions that Azurite knows.
    options = ["--skipApiVersionCheck", "--disableTelemetry", "--silent", "--inMemoryPersistence"]
    command = [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), *options]
    log = (folder / "log").open("wb")
    server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    try:
        _make_container(port, folder / "log")
        yield port
    finally:
        server.terminate()
        server.wait(timeout=30)
        log.close()


def _make_container(port: int, log: Path) -> None:
    server = f"127.0.0.1:{port}"
    options = {f"{kind}_storage_authority": server for kind in ("blob", "dfs")}
    options |= {f"{kind}_storage_scheme": "http" for kind in ("blob", "dfs")}
    deadline = time.monotonic() + 120
    while True:
        try:
            pafs.AzureFileSystem(ACCOUNT, account_key=KEY, **options).create_dir("bucket")
        except OSError as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"azurite does not start: {log.read_text()}") from error
            time.sleep(0.5)
        else:
            return


def azure_location(port: int, folder: str) -> str:
    """The URI of a folder of the container. The key stands in the environment."""
    return f"az://{ACCOUNT}@bucket/{folder}?endpoint_override=127.0.0.1:{port}&scheme=http"
