"""Azure Blob Storage: the account of a location, and its clients of ``pyarrow.fs`` and ``obstore``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from shardmill.infra.storage.locations import ObjectLocation

if TYPE_CHECKING:
    from obstore.store import ObjectStore


def azure_filesystem(location: ObjectLocation) -> pafs.FileSystem:
    """Arrow's filesystem of the account. Without a key, it looks for credentials as Azure's own tools do.

    Raises:
        ValueError: no account is named.
    """
    options: dict[str, Any] = {}
    if location.endpoint is not None:
        scheme, _, server = location.endpoint.partition("://")
        for kind in ("blob", "dfs"):
            options |= {f"{kind}_storage_authority": server, f"{kind}_storage_scheme": scheme}
    key, token = _key(location), _token()
    if key:
        options["account_key"] = key
    elif token:
        options["sas_token"] = token
    return pafs.AzureFileSystem(_account(location), **options)


def list_objects(filesystem: pafs.FileSystem, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
    """List what a selector names in any filesystem; in Azure folder by folder.

    Arrow's client of Azure lists a folder below itself for ever where a key has an empty part (``a//b.jpg``),
    and the process ends. Such a folder is one file here, whose name ends in a slash.
    """
    if not (selector.recursive and isinstance(filesystem, pafs.AzureFileSystem)):
        return list(filesystem.get_file_info(selector))
    found: list[pafs.FileInfo] = []
    waiting = [selector.base_dir]
    while waiting:
        folder = waiting.pop().rstrip("/")
        below = pafs.FileSelector(folder, allow_not_found=selector.allow_not_found, recursive=False)
        for info in filesystem.get_file_info(below):
            if info.type != pafs.FileType.Directory:
                found.append(info)
            elif info.path.rstrip("/").startswith(f"{folder}/"):
                found.append(info)
                waiting.append(info.path)
            else:
                found.append(pafs.FileInfo(f"{folder}//", pafs.FileType.File, size=0))
    return found


def azure_store(location: ObjectLocation, client: Any, attempts: Any) -> ObjectStore:
    """The store of ``obstore`` of the container.

    Raises:
        ValueError: no account is named.
    """
    from obstore.store import AzureStore

    account, key = _account(location), _key(location)
    config: dict[str, Any] = {"account_name": account}
    if key:
        config["account_key"] = key
    elif _token():
        config["sas_key"] = _token()
    if location.endpoint is not None:
        config["endpoint"] = f"{location.endpoint}/{account}"
    return AzureStore(
        location.bucket,
        config=config,  # type: ignore[arg-type]
        client_options=client,
        retry_config=attempts,
    )


def _account(location: ObjectLocation) -> str:
    account = location.user or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    if not account:
        raise ValueError("no storage account is named; set AZURE_STORAGE_ACCOUNT_NAME")
    return account


def _key(location: ObjectLocation) -> str:
    return location.password or os.environ.get("AZURE_STORAGE_ACCOUNT_KEY", "")


def _token() -> str:
    return os.environ.get("AZURE_STORAGE_SAS_TOKEN", "").removeprefix("?")
