"""Open what a URI names: a filesystem of Arrow, and a store of ``obstore`` with errors of Python."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs

from shardmill.infra.errors import StorageError
from shardmill.infra.storage.locations import (
    ObjectLocation,
    object_location,
    object_path,
    public_location,
    with_plain_endpoint,
    without_secrets,
)
from shardmill.infra.storage.objects.hub import HubFiles, is_on_hub
from shardmill.infra.storage.objects.retries import ATTEMPTS, DEADLINE_SECONDS
from shardmill.infra.strict_json import dump_json

if TYPE_CHECKING:
    from obstore.store import ObjectStore

# Of Arrow's own repetitions of a request to Google's store, whose default is 15 minutes. Ours come on top.
_GOOGLE_RETRY_SECONDS = 20
_REQUEST_SECONDS = 20  # the longest that one attempt may take
_CODE = re.compile(r"<Code>(\w+)</Code>")
_CLIENT: Any = {"timeout": f"{_REQUEST_SECONDS}s", "connect_timeout": "5s", "allow_http": True}
# A condition that failed after a lost answer must be seen by the caller.
ONE_ATTEMPT: Any = {"max_retries": 0}
SEVERAL_ATTEMPTS: Any = {
    "max_retries": ATTEMPTS - 1,
    "retry_timeout": timedelta(seconds=DEADLINE_SECONDS),
}


def open_filesystem(location: str) -> tuple[pafs.FileSystem, str]:
    """The filesystem of a URI or local path, and the path in it.

    Raises:
        StorageError: the URI is wrong, or of a kind of storage that is not known here.
    """
    if "://" not in location:
        return pafs.LocalFileSystem(), str(Path(location).expanduser().absolute())
    if is_on_hub(location):
        return HubFiles.opened(location)
    try:
        found = object_location(location)
        if found is not None and found.scheme == "az":
            return _azure_filesystem(found), object_path(location)
        filesystem, path = pafs.FileSystem.from_uri(_with_bounded_retries(location))
    except (pa.ArrowException, OSError, ValueError) as error:
        # Not `from error`: its text may hold the credentials of the URI.
        scheme = location.partition("://")[0]
        raise StorageError(
            f"cannot open storage {public_location(location)}: {without_secrets(str(error), location)}",
            f"check the URI and the credentials of {scheme}://",
        ) from None
    return filesystem, path


def _with_bounded_retries(location: str) -> str:
    """The location as Arrow takes it; in Google's store with a limit of Arrow's repetitions."""
    location = with_plain_endpoint(location)
    found = object_location(location)
    if found is None or found.scheme not in ("gs", "gcs") or "retry_limit_seconds=" in location:
        return location
    return f"{location}{'&' if '?' in location else '?'}retry_limit_seconds={_GOOGLE_RETRY_SECONDS}"


def _azure_filesystem(location: ObjectLocation) -> pafs.FileSystem:
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


def _account(location: ObjectLocation) -> str:
    account = location.user or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    if not account:
        raise ValueError("no storage account is named; set AZURE_STORAGE_ACCOUNT_NAME")
    return account


def _key(location: ObjectLocation) -> str:
    return location.password or os.environ.get("AZURE_STORAGE_ACCOUNT_KEY", "")


def _token() -> str:
    return os.environ.get("AZURE_STORAGE_SAS_TOKEN", "").removeprefix("?")


@contextlib.contextmanager
def errors_of_the_store() -> Iterator[None]:
    """Raise errors of obstore as ``OSError``, without their page of details; failed conditions stay."""
    from obstore import exceptions

    try:
        yield
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        raise
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise PermissionError(_first_line(error)) from None
    except FileNotFoundError as error:
        raise FileNotFoundError(_first_line(error)) from None
    except exceptions.BaseError as error:
        raise OSError(_first_line(error)) from None


def _first_line(error: Exception) -> str:
    """The message of an error of ``obstore``, with the store's code but without its page of details."""
    text = str(error)
    line = text.partition("\n")[0].partition("<?xml")[0].strip()
    code = _CODE.search(text)
    return line if code is None or code[1] in line else f"{line} {code[1]}"


def has_own_uploads(location: str) -> bool:
    """Tell whether whole objects are written by ``obstore``: Arrow's writer shows unfinished ones."""
    found = object_location(location)
    return found is not None and found.scheme == "az"


def open_store(location: str, region: str | None, attempts: Any) -> ObjectStore:
    """Open the bucket or container of a location.

    Args:
        location: the URI of a folder in it.
        region: region of an S3 bucket, if its location names no region.
        attempts: ``ONE_ATTEMPT`` or ``SEVERAL_ATTEMPTS`` at each request.

    Raises:
        StorageError: the URI or the credentials are wrong, or nothing can be written to such a store.
    """
    found = object_location(location)
    assert found is not None, "for object stores"
    try:
        if found.scheme == "s3":
            return _s3_store(found, region, attempts)
        if found.scheme in ("gs", "gcs"):
            return _google_store(found, attempts)
        if found.scheme == "az":
            return _azure_store(found, attempts)
    except (ValueError, TypeError) as error:
        raise StorageError(
            f"cannot open storage {public_location(location)}: "
            + without_secrets(_first_line(error), location),
            f"check the URI and the credentials of {found.scheme}://",
        ) from None
    raise StorageError(
        f"cannot write to {public_location(location)}: writing to {found.scheme}:// is not supported",
        "write to a local folder, s3://, gs:// or az://",
    )


def _azure_store(location: ObjectLocation, attempts: Any) -> ObjectStore:
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
        client_options=_CLIENT,
        retry_config=attempts,
    )


def _s3_store(location: ObjectLocation, region: str | None, attempts: Any) -> ObjectStore:
    from obstore.store import S3Store

    config: dict[str, Any] = {"region": location.region or region or "us-east-1"}
    endpoint = (
        location.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    )
    if endpoint is not None:
        config["endpoint"] = endpoint
    if location.user:
        config |= {"access_key_id": location.user, "secret_access_key": location.password}
    has_keys = location.user or "AWS_ACCESS_KEY_ID" in os.environ
    return S3Store(
        location.bucket,
        config=config,  # type: ignore[arg-type]
        client_options=_CLIENT,
        retry_config=attempts,
        credential_provider=None if has_keys else _profile_credentials(),
    )


def _profile_credentials() -> Any:
    """The credentials of ``~/.aws`` or of the machine's role, as AWS's own tools find them; or None."""
    import boto3
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = boto3.Session()
    return Boto3CredentialProvider(session) if session.get_credentials() is not None else None


def _google_store(location: ObjectLocation, attempts: Any) -> ObjectStore:
    from obstore.store import GCSStore

    config: dict[str, Any] = {} if location.endpoint is None else {"base_url": location.endpoint}
    if location.user == "anonymous":
        # With skip_signature alone, writing asks for a token all the same.
        account = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
        if location.endpoint is not None:
            account["gcs_base_url"] = location.endpoint
        config = {"service_account_key": dump_json(account)}
    return GCSStore(
        location.bucket,
        config=config,  # type: ignore[arg-type]
        client_options=_CLIENT,
        retry_config=attempts,
    )
