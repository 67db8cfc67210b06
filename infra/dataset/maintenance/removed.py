"""What was removed from a dataset: versions, which can be brought back for some days, and purged contents.

The manifest of a removed version moves from ``manifests/`` into ``removed/NNNNNN.json``, so no one sees the
version any more. Its files stay until the days are over, or until it is deleted for good; then a collection
of garbage removes them, and the record keeps the number, which no other version gets.

Purged contents and URIs are removed for good. They are listed as SHA-256: digests of contents keep those
contents from coming back, digests of URIs let a repeated request for a purge succeed. Someone who has a
content or a name can find out whether it was purged; the list reveals neither.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, NotRequired

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from shardmill.infra.dataset.catalog import Catalog, removed_numbers
from shardmill.infra.dataset.lock import lock_for_adding, lock_for_removing
from shardmill.infra.digests import sha256_hex
from shardmill.infra.errors import CorruptDataError, NotFoundError, PublishConflict, UsageError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.format.layout import (
    croissant_file,
    decode_manifest,
    manifest_file,
    removed_file,
    signature_file,
)
from shardmill.infra.json_files import decode_json
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json

GRACE_DAYS = 7.0


def _checked_time(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a time without its zone")
    return text


_Time = Annotated[str, AfterValidator(_checked_time)]


class _Record(TypedDict):
    """The content of a file in ``removed/``; without a manifest, the version is deleted for good."""

    version: int
    removed_at: _Time
    until: _Time
    manifest: str | None
    signature: str | None


@dataclass(frozen=True, slots=True)
class RemovedVersion:
    """A version that was removed.

    Attributes:
        version: its number.
        removed_at: when.
        until: when it may be deleted for good.
        manifest: None if it is deleted.
    """

    version: int
    removed_at: datetime
    until: datetime
    manifest: Manifest | None

    def is_kept(self, now: datetime) -> bool:
        """Tell whether it can be brought back."""
        return self.manifest is not None and now < self.until


def removed_versions(storage: Storage) -> list[RemovedVersion]:
    """Return the removed versions of a dataset, in ascending order.

    Raises:
        CorruptDataError: a record is damaged.
    """
    found = []
    for number in removed_numbers(storage):
        record = _read(storage, number)
        text, place = record["manifest"], f"{storage.uri}/{removed_file(number)}"
        manifest = None if text is None else decode_manifest(text.encode(), path=place)
        removed_at, until = (datetime.fromisoformat(record[name]) for name in ("removed_at", "until"))
        found.append(RemovedVersion(number, removed_at, until, manifest))
    return found


def files_of_removed(storage: Storage, now: datetime | None = None) -> set[str]:
    """Return the files of the removed versions that can be brought back."""
    at = now or datetime.now(UTC)
    kept = (each.manifest for each in removed_versions(storage) if each.is_kept(at))
    return {path for manifest in kept if manifest is not None for path in manifest.files()}


def remove_versions(
    catalog: Catalog, name: str, versions: Collection[int] | None = None, *, keep_days: float = GRACE_DAYS
) -> list[int]:
    """Remove versions of a dataset; return their numbers.

    Args:
        catalog: the root of the dataset.
        name: name of the dataset.
        versions: their numbers; None: all of them, and so the dataset.
        keep_days: for so long they can be brought back.

    Raises:
        NotFoundError, UsageError: as ``check_removable``. LockedError: a version is being made.
    """
    storage = catalog.dataset_storage(name)
    check_removable(catalog, name, versions)  # before the lock's file makes a folder
    with lock_for_removing(storage, name):
        numbers = check_removable(catalog, name, versions)
        now = datetime.now(UTC)
        until = now + timedelta(days=keep_days)
        for number in numbers:
            signature = signature_file(number)
            record = _Record(
                version=number,
                removed_at=now.isoformat(timespec="seconds"),
                until=until.isoformat(timespec="seconds"),
                manifest=storage.read_bytes(manifest_file(number)).decode(),
                signature=storage.read_bytes(signature).decode() if storage.exists(signature) else None,
            )
            _write(storage, record)
            for path in (signature, manifest_file(number), croissant_file(number)):
                storage.delete(path)
    return numbers


def check_removable(catalog: Catalog, name: str, versions: Collection[int] | None) -> list[int]:
    """Return the versions that a removal concerns, in ascending order.

    Raises:
        NotFoundError: there is no such dataset or version. UsageError: the newest is removed and others stay.
    """
    catalog.open(name)  # says which datasets there are
    known = catalog.versions(name)
    wanted = sorted(known if versions is None else set(versions))
    if unknown := [number for number in wanted if number not in known]:
        raise NotFoundError(
            f"dataset {name} has no version {unknown[0]}", f"it has: {', '.join(map(str, known))}"
        )
    if known[-1] in wanted and len(wanted) < len(known):
        raise UsageError(
            f"{name}@{known[-1]} is the newest version, which stays while there are others",
            f"publish what you want in its place first: shardmill rollback {name}@VERSION; or remove {name}",
        )
    return wanted


def check_restorable(
    catalog: Catalog, name: str, versions: Collection[int] | None = None
) -> list[RemovedVersion]:
    """Return the removed versions that a restoration concerns, in ascending order; None: all of them.

    Raises:
        NotFoundError: there is no such version, or its days are over.
    """
    now = datetime.now(UTC)
    removed = removed_versions(catalog.dataset_storage(name))
    there = {each.version: each for each in removed if each.is_kept(now)}
    wanted = sorted(there if versions is None else set(versions))
    if not wanted or any(number not in there for number in wanted):
        listed = ", ".join(f"{name}@{number}" for number in there) or "none"
        raise NotFoundError(f"{name} has no such version to bring back", f"removed and still kept: {listed}")
    return [there[number] for number in wanted]


def bring_back(catalog: Catalog, name: str, versions: Collection[int] | None = None) -> list[int]:
    """Publish removed versions again under their numbers; return these.

    Raises:
        NotFoundError: as ``check_restorable``. CorruptDataError: a file of it is gone.
        LockedError: parts of the dataset are being removed.
    """
    storage, wanted = catalog.dataset_storage(name), check_restorable(catalog, name, versions)
    with lock_for_adding(storage, name):
        for each in wanted:
            number, manifest, record = each.version, each.manifest, _read(storage, each.version)
            gone = [path for path in manifest.files() if not storage.exists(path)] if manifest else []
            if gone:
                raise CorruptDataError(f"{name}@{number} is not whole: {gone[0]} is gone", "prepare it again")
            _publish(storage, record)
            storage.delete(removed_file(number))
    return [each.version for each in wanted]


def _publish(storage: Storage, record: _Record) -> None:
    manifest, path = str(record["manifest"]).encode(), manifest_file(record["version"])
    if record["signature"] is not None:
        storage.write_atomic(signature_file(record["version"]), record["signature"].encode())
    try:
        storage.create_if_absent(path, manifest)
    except PublishConflict:
        if storage.read_bytes(path) != manifest:  # a removal that was killed left it
            raise


def delete_for_good(storage: Storage, now: datetime | None = None) -> list[int]:
    """Delete the manifests of removed versions whose days are over; None: of all. Return their numbers.

    The lock of the dataset must be held. Their files are garbage then.
    """
    done = []
    for each in removed_versions(storage):
        if each.manifest is not None and (now is None or not each.is_kept(now)):
            record = _read(storage, each.version)
            record["manifest"] = record["signature"] = None
            _write(storage, record)
            done.append(each.version)
    return done


def _read(storage: Storage, number: int) -> _Record:
    path = removed_file(number)
    return decode_json(storage.read_bytes(path), _Record, f"{storage.uri}/{path}", "restore it from a copy")


def _write(storage: Storage, record: _Record) -> None:
    storage.write_atomic(removed_file(record["version"]), dump_json(record).encode("ascii"))


_PURGED_FILE = "purged.json"
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
    dataset.write_atomic(_PURGED_FILE, dump_json(found, indent=0).encode())


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
        data = dataset.read_bytes(_PURGED_FILE)
    except NotFoundError:
        return {_CONTENTS: set(), _URIS: set()}
    found = decode_json(data, _Purged, f"{dataset.uri}/{_PURGED_FILE}", remedy)
    return {_CONTENTS: set(found["sha256"]), _URIS: set(found.get("uri_sha256", []))}
