"""Find the rows that a purge removes from each version, including those that a killed purge left."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.maintenance.removed import PURGING_FILE, purged_contents, purged_uris
from shardmill.infra.dataset.version import DatasetVersion, read_parquet
from shardmill.infra.errors import CorruptDataError, NotFoundError, UsageError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import is_text, uri_of
from shardmill.infra.storage.objects.hub import without_revision
from shardmill.infra.strict_json import dump_json

_PARTS_IN_MEMORY = 64


@dataclass(frozen=True)
class ToPurge:
    """Everything that a purge removes, over all versions.

    Attributes:
        dataset: its name.
        uris: the requested URIs, sorted; they are removed whatever their content.
        other_uris: other URIs with the same bytes, sorted; they are removed where they had these bytes.
        digests: SHA-256 (hexadecimal) of every content that is or was purged.
        rows: version -> number of rows of inputs that it loses, of the versions that lose any.
        pending: whether this purge finishes one that was killed.
        gone: requested sources that were purged before.
    """

    dataset: str
    uris: list[str]
    other_uris: list[str]
    digests: frozenset[str]
    rows: dict[int, int] = field(default_factory=dict)
    pending: bool = False
    gone: list[str] = field(default_factory=list)

    @property
    def ids(self) -> set[str]:
        """The record ids of the contents."""
        return {digest[:16] for digest in self.digests}

    def matches(self, inputs: pa.Table) -> pa.ChunkedArray:
        """Return which rows of inputs are removed: bool [rows]."""
        by_uri = pc.is_in(inputs["uri"], pa.array(self.uris, pa.string()))
        return pc.or_(by_uri, pc.is_in(inputs["sha256"], pa.array(sorted(self.digests), pa.string())))


def find_to_purge(catalog: Catalog, name: str, sources: Sequence[str]) -> ToPurge:
    """Find what a purge would remove, without removing it.

    Args:
        catalog: the datasets.
        name: name of the dataset.
        sources: URIs relative to the source, or paths of files; none to finish a purge that was killed.

    Raises:
        NotFoundError: there is no such dataset, or no version ever knew one of the sources.
        UsageError: no source is given, and no purge has to be finished.
    """
    catalog.open(name)  # says which datasets there are
    versions = [catalog.open(f"{name}@{number}") for number in catalog.versions(name)]
    storage = catalog.dataset_storage(name)
    journal = _read_journal(storage)
    tables = _Tables(storage)
    if not sources and not journal:
        raise UsageError(
            f"no input is named, and no purge of {name} has to be finished",
            f"name the images to remove: `shardmill purge {name} --source URI`",
        )
    asked, gone = set(journal), []
    for source in sources:
        names = {uri for version in versions for uri in _uris_of(version, source)}
        found = {uri for version in versions for uri in tables.among(version.manifest, names)}
        if not found and not names & set(journal):
            if not purged_uris(storage, names):
                raise NotFoundError(
                    f"no version of {name} knows the source {uri_of(source)!r}",
                    f"URIs are relative to {versions[-1].manifest.source}; see `shardmill locate`",
                )
            gone.append(uri_of(source))
        asked |= found
    if not asked:
        return ToPurge(name, [], [], frozenset(), gone=gone)
    digests = {digest.hex() for digest in purged_contents(storage)}
    for version in versions:
        digests |= tables.digests_of(version.manifest, asked)
    wanted = ToPurge(name, sorted(asked), [], frozenset(digests), pending=bool(journal), gone=gone)
    going = {version.version: tables.matching(version.manifest, wanted) for version in versions}
    others = {uri for uris in going.values() for uri in uris} - asked
    rows = {number: len(uris) for number, uris in going.items() if uris}
    return replace(wanted, other_uris=sorted(others), rows=rows)


def _uris_of(version: DatasetVersion, source: str) -> set[str]:
    """Return the URIs that a person may mean by ``source``, as a version would have them."""
    prefix, source = without_revision(version.manifest.source).rstrip("/") + "/", without_revision(source)
    shown, named = source.removeprefix(prefix), uri_of(source).removeprefix(prefix)
    return {shown, named} if is_text(shown) else {named}


class _Tables:
    """The parts of the inputs of all versions; the last ones read are kept in memory."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._read = lru_cache(_PARTS_IN_MEMORY)(self._read_part)

    def _read_part(self, path: str) -> pa.Table:
        with self._storage.open_input(path) as stream:
            return read_parquet(stream, columns=["uri", "sha256"])

    def _parts(self, manifest: Manifest) -> Iterator[pa.Table]:
        return (self._read(part.path) for part in manifest.inputs)

    def among(self, manifest: Manifest, uris: Iterable[str]) -> set[str]:
        """Return those of the URIs that a version has."""
        wanted = pa.array(sorted(uris), pa.string())
        found: set[str] = set()
        for part in self._parts(manifest):
            found |= set(part["uri"].filter(pc.is_in(part["uri"], wanted)).to_pylist())
        return found

    def digests_of(self, manifest: Manifest, uris: Iterable[str]) -> set[str]:
        """Return the SHA-256 of every content that a version saw under one of these URIs."""
        wanted = pa.array(sorted(uris), pa.string())
        found: set[str] = set()
        for part in self._parts(manifest):
            found |= set(part["sha256"].filter(pc.is_in(part["uri"], wanted)).drop_null().to_pylist())
        return found

    def matching(self, manifest: Manifest, wanted: ToPurge) -> list[str]:
        """Return the URIs of the rows that a version loses."""
        return [
            uri
            for part in self._parts(manifest)
            for uri in part["uri"].filter(wanted.matches(part)).to_pylist()
        ]


def _read_journal(storage: Storage) -> list[str]:
    """Read the URIs of a purge that was killed; empty if there is none.

    Raises:
        CorruptDataError: the journal is not readable.
    """
    try:
        return [str(uri) for uri in json.loads(storage.read_bytes(PURGING_FILE))["uris"]]
    except NotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptDataError(
            f"{storage.uri}/{PURGING_FILE} is not readable: {error}",
            "delete it, and purge the same sources again",
        ) from error


def write_journal(storage: Storage, wanted: ToPurge) -> None:
    """Write the journal of a purge, which stays until the purge is finished."""
    storage.write_atomic(PURGING_FILE, dump_json({"uris": wanted.uris}).encode())
