"""Azurite, Microsoft's server program of Azure Blob Storage, with one container."""

from __future__ import annotations

import base64
import contextlib
import hmac
import http.client
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote

import pyarrow.fs as pafs

from shardmill.infra.processes.ports import free_port
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


def put_blob(port: int, key: str, data: bytes) -> None:
    """Write a blob of any name, which no library at hand does. The request is signed as Microsoft says.

    https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
    """
    path = f"/{ACCOUNT}/bucket/{quote(key, safe='/')}"
    headers = {
        "x-ms-blob-type": "BlockBlob",
        "x-ms-date": formatdate(usegmt=True),
        "x-ms-version": "2021-08-06",
    }
    fields = ["PUT", "", "", str(len(data) or ""), *[""] * 8]
    signed = "\n".join([*fields, *(f"{name}:{text}" for name, text in headers.items()), f"/{ACCOUNT}{path}"])
    digest = hmac.digest(base64.b64decode(KEY), signed.encode(), "sha256")
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("PUT", path, data, headers)
    assert connection.getresponse().status == 201, key
    connection.close()
