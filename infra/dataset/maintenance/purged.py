"""The list of purged contents and URIs of a dataset, as SHA-256, and the mark of an unfinished purge.

Digests of contents keep those contents from coming back. Digests of URIs let a repeated request for a purge
succeed. Someone who has a content or a name can find out whether it was purged; the list reveals neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NotRequired

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from shardmill.infra.digests import sha256_hex
from shardmill.infra.errors import NotFoundError
from shardmill.infra.json_files import decode_json
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json

PURGED_FILE = "purged.json"
PURGING_FILE = "purging.json"  # exists from the beginning of a purge to its end

_CONTENTS, _URIS = "sha256", "uri_sha256"


_Digest = Annotated[str, Field(pattern="^[0-9a-fA-F]{64}$"), AfterValidator(str.lower)]


class _Purged(TypedDict):
    sha256: list[_Digest]
    uri_sha256: NotRequired[list[_Digest]]  # earlier lists know no URIs


def purged_contents(dataset: Storage) -> frozenset[bytes]:
    """SHA-256 of every content that was purged from a dataset.

    Raises:
        CorruptDataError: the list is not readable.
    """
    return frozenset(bytes.fromhex(digest) for digest in _listed(dataset)[_CONTENTS])


def purged_uris(dataset: Storage, uris: Iterable[str]) -> set[str]:
    """The subset of the URIs (text, as in inputs) that were purged from a dataset.

    Raises:
        CorruptDataError: the list is not readable.
    """
    listed = _listed(dataset)[_URIS]
    return {uri for uri in uris if sha256_hex(uri.encode()) in listed}


def add_purged(dataset: Storage, contents: Iterable[bytes], uris: Iterable[str]) -> None:
    """Add contents (SHA-256) and URIs to the list of purged ones of a dataset."""
    listed = _listed(dataset)
    found = {
        _CONTENTS: sorted(listed[_CONTENTS] | {digest.hex() for digest in contents}),
        _URIS: sorted(listed[_URIS] | {sha256_hex(uri.encode()) for uri in uris}),
    }
    dataset.write_atomic(PURGED_FILE, dump_json(found, indent=0).encode())


def warning_of_unfinished_purge(dataset: Storage, name: str) -> str | None:
    """A warning for people if a purge was begun and not finished; otherwise None."""
    if not dataset.exists(PURGING_FILE):
        return None
    return (
        f"a purge of {name} is not finished: images that it removes may still be there; "
        f"`shardmill purge {name} --apply` finishes it"
    )


def _listed(dataset: Storage) -> dict[str, set[str]]:
    remedy = "restore it from a copy: without it, purged images would come back"
    try:
        data = dataset.read_bytes(PURGED_FILE)
    except NotFoundError:
        return {_CONTENTS: set(), _URIS: set()}
    found = decode_json(data, _Purged, f"{dataset.uri}/{PURGED_FILE}", remedy)
    return {_CONTENTS: set(found["sha256"]), _URIS: set(found.get("uri_sha256", []))}
