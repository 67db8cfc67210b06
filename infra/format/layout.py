"""The paths of the files and folders of a dataset, and the reading and writing of its manifests.

::

    <root>/<dataset>/
      manifests/000003.json                   the commit of version 3
      manifests/000003.json.sig               its signature, if it was signed
      croissant-000003.json                   version 3 as MLCommons Croissant
      decisions/000001.json                   what people decided about records (infra.dataset.decisions)
      removed/000002.json                     the manifest of version 2, which was removed and may come back
      data/<plan digest>/
        train-00000-of-00012.tfrecord.gz      a shard (no .gz where the container is "none")
        train-00000-of-00012.parquet          its index: INDEX_SCHEMA, one row per record, in stored order
        inputs-<digest>.parquet               INPUTS_SCHEMA, a row per input file, sorted by URI: a part
        near_duplicates.parquet               NEAR_DUPLICATES_SCHEMA
        report.html
      spool/<run digest>/                     work in progress; gone after publishing
      fetched/<digest>.arrow                  addresses that images were fetched from

Schemas are in shardmill.infra.format.contract. A manifest is JSON that is sealed: the key ``checksum`` is the
SHA-256 of the canonical JSON of all other keys. Manifests of early releases have none.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import ValidationError

from shardmill.infra.digests import canonical_json, sha256_hex
from shardmill.infra.errors import CorruptDataError, FormatVersionError
from shardmill.infra.format.contract import FORMAT_VERSIONS, Manifest
from shardmill.infra.format.records import Container
from shardmill.infra.strict_json import dump_json, finite

_CHECKSUM = "checksum"
_RESTORE = "restore the file from a copy; moved out of the folder, it no longer hides the other versions"
_MANIFEST_NAME = re.compile(r"(\d{6,})\.json")
_INPUTS_NAME = re.compile(r"inputs-[0-9a-f]+\.parquet")


def shard_stem(split: str, index: int, count: int) -> str:
    """``train-00000-of-00012``."""
    return f"{split}-{index:05d}-of-{count:05d}"


def shard_file(split: str, index: int, count: int, container: Container) -> str:
    """File name of a shard."""
    suffix = ".tfrecord.gz" if container == "gzip" else ".tfrecord"
    return shard_stem(split, index, count) + suffix


def index_file(split: str, index: int, count: int) -> str:
    """File name of a shard's index."""
    return shard_stem(split, index, count) + ".parquet"


def inputs_file(digest: str) -> str:
    """File name of a part of the inputs; ``digest`` is of its rows."""
    return f"inputs-{digest}.parquet"


def is_inputs_file(path: str) -> bool:
    """Tell whether a path names a part of the inputs."""
    return _INPUTS_NAME.fullmatch(path.rpartition("/")[2]) is not None


def data_dir(plan_digest: str) -> str:
    """Return the folder of the files that one plan wrote, relative to the dataset."""
    return f"data/{plan_digest}"


def spool_dir(run_digest: str) -> str:
    """Folder of work in progress, relative to the dataset."""
    return f"spool/{run_digest}"


def manifest_file(version: int) -> str:
    """Path of a version's manifest, relative to the dataset."""
    return f"manifests/{version:06d}.json"


def signature_file(version: int) -> str:
    """Path of the signature of a version's manifest, relative to the dataset."""
    return f"{manifest_file(version)}.sig"


REMOVED = "removed"


def removed_file(version: int) -> str:
    """Path of the record of a version that was removed, relative to the dataset."""
    return f"{REMOVED}/{version:06d}.json"


def croissant_file(version: int) -> str:
    """Path of a version's description as Croissant, relative to the dataset."""
    return f"croissant-{version:06d}.json"


def version_of_manifest(file_name: str) -> int | None:
    """The number of the version that a file in ``manifests/`` publishes; None if it is no manifest."""
    found = _MANIFEST_NAME.fullmatch(file_name)
    return int(found[1]) if found else None


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
