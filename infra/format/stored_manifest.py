"""Manifests as they are stored: JSON that is sealed with a checksum.

The key ``checksum`` is the SHA-256 of the canonical JSON of all other keys. Manifests of early releases have
none.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from shardmill.infra.digests import canonical_json, sha256_hex
from shardmill.infra.errors import CorruptDataError, FormatVersionError
from shardmill.infra.format.contract import FORMAT_VERSIONS, Manifest
from shardmill.infra.strict_json import dump_json, finite

_CHECKSUM = "checksum"
_RESTORE = "restore the file from a copy; moved out of the folder, it no longer hides the other versions"


def encode_manifest(manifest: Manifest) -> bytes:
    """The stored form of a manifest, sealed with its checksum."""
    document = finite(manifest.model_dump(mode="json"))
    sealed = document | {_CHECKSUM: _checksum(document)}
    return (dump_json(sealed, indent=1, ensure_ascii=True) + "\n").encode("ascii")


def decode_manifest(data: bytes, path: str = "manifest") -> Manifest:
    """The manifest of a stored form; ``path`` names it in errors.

    Raises:
        FormatVersionError: it has another format version, or keys that are not known here.
        CorruptDataError: it is no manifest, or it was altered after it was written.
    """
    document = _document_of_this_format(data, path)
    checksum = document.pop(_CHECKSUM, None)
    if checksum is not None and checksum != _checksum(document):
        raise CorruptDataError(
            f"{path} was altered after it was written: its checksum does not match its content", _RESTORE
        )
    try:
        return Manifest.model_validate(document)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        extra = [each["loc"] for each in problems if each["type"] == "extra_forbidden"]
        if unknown := [".".join(map(str, place)) for place in extra]:
            raise FormatVersionError(
                f"{path} has keys that this Shardmill does not know: {', '.join(unknown)}",
                "a newer release wrote it: read it with that release",
            ) from error
        raise CorruptDataError(f"{path} is not a valid manifest: {error}", _RESTORE) from error


def is_sealed(data: bytes) -> bool:
    """Tell whether a stored manifest has a checksum."""
    return _CHECKSUM in json.loads(data)


def _document_of_this_format(data: bytes, path: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(data)
        found = document["format_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptDataError(f"{path} is not a manifest: {error}", _RESTORE) from error
    if found not in FORMAT_VERSIONS:
        known = " and ".join(map(str, FORMAT_VERSIONS))
        raise FormatVersionError(
            f"{path} has format version {found}; this Shardmill reads format version {known}",
            "use the Shardmill release that wrote it, or prepare the dataset again under another name",
        )
    return document


def _checksum(document: dict[str, Any]) -> str:
    return sha256_hex(canonical_json(document))
