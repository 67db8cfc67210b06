"""Azurite, Microsoft's server program of Azure Blob Storage, with one container."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs

from infra.processes.ports import free_port
from tests.samples.stores.store_program import program_of, serving

ACCOUNT = "devstoreaccount1"
# The key of every Azurite, published by Microsoft.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[int]:
    """Run the server, with the container ``bucket``; its port. Skip the test where it is not installed."""
    program = program_of("AZURITE", "azurite-blob", "npm install --global azurite")
    port = free_port()
    # Clients are newer than the versions that Azurite knows.
    options = ["--skipApiVersionCheck", "--disableTelemetry", "--silent", "--inMemoryPersistence"]
    command = [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), *options]

    def client() -> pafs.AzureFileSystem:
        options = {f"{kind}_storage_authority": f"127.0.0.1:{port}" for kind in ("blob", "dfs")}
        options |= {f"{kind}_storage_scheme": "http" for kind in ("blob", "dfs")}
        return pafs.AzureFileSystem(ACCOUNT, account_key=KEY, **options)

    with serving(command, folder, client):
        yield port


def azure_location(port: int, folder: str) -> str:
    """The URI of a folder of the container. The key stands in the environment."""
    return f"az://{ACCOUNT}@bucket/{folder}?endpoint_override=127.0.0.1:{port}&scheme=http"
