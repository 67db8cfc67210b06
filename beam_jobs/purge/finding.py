"""What has to go from each version: by URI, by content, and by what a purge that was killed left undone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.catalog import Catalog, DatasetVersion
from infra.contract import Manifest
from infra.errors import CorruptDataError, NotFoundError
from infra.names import is_text, uri_of
from infra.purged import purged_contents
from infra.storage import Storage

JOURNAL_FILE = "purging.json"

_PARTS_IN_MEMORY = 64


@dataclass(frozen=True)
class ToPurge:
    """What goes, over all versions.

    Attributes:
        dataset: its name.
        uris: that were asked for, sorted: they go, whatever their content.
        other_uris: that had the same bytes, sorted: they go where they had them.
        digests: SHA-256 of every content that goes, or went before.
        rows: version -> how many rows of inputs go from it; versions that lose none are not named.
        pending: whether a purge that was killed is finished with this one.
    """

    dataset: str
    uris: list[str]
    other_uris: list[str]
    digests: frozenset[str]
    rows: dict[int, int] = field(default_factory=dict)
    pending: bool = False

    @property
    def ids(self) -> set[str]:
        """Record ids of the contents."""
        return {digest[:16] for digest in self.digests}

    def matches(self, inputs: pa.Table) -> pa.ChunkedArray:
        """Which rows of inputs go: bool [rows]."""
        by_uri = pc.is_in(inputs["uri"], pa.array(self.uris, pa.string()))
        return pc.or_(by_uri, pc.is_in(inputs["sha256"], pa.array(sorted(self.digests), pa.string())))


def find_to_purge(catalog: Catalog, name: str, sources: Sequence[str]) -> ToPurge:
    """What would go; nothing is removed.

    Args:
        sources: URIs relative to the source, or paths of files.

    Raises:
        NotFoundError: there is no such dataset, or no version knows one of the sources.
    """
    catalog.open(name)  # says which datasets there are
    versions = [catalog.open(f"{name}@{number}") for number in catalog.versions(name)]
    storage = catalog.dataset_storage(name)
    journal = read_journal(storage)
    tables = _Tables(storage)
    asked, digests = set(journal), {digest.hex() for digest in purged_contents(storage)}
    for source in sources:
        found = {uri for version in versions for uri in tables.named(version, source)}
        if not found and not journal:
            raise NotFoundError(
                f"no version of {name} knows the source {uri_of(source)!r}",
                f"URIs are relative to {versions[-1].manifest.source}; see `shardmill locate`",
            )
        asked |= found
    for version in versions:
        digests |= tables.digests_of(version.manifest, asked)
    wanted = ToPurge(name, sorted(asked), [], frozenset(digests), pending=bool(journal))
    going = {version.version: tables.matching(version.manifest, wanted) for version in versions}
    others = {uri for uris in going.values() for uri in uris} - asked
    rows = {number: len(uris) for number, uris in going.items() if uris}
    return replace(wanted, other_uris=sorted(others), rows=rows)


class _Tables:
    """The parts of the inputs of all versions, each read once while it is near at hand."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._read = lru_cache(_PARTS_IN_MEMORY)(self._read_part)

    def _read_part(self, path: str) -> pa.Table:
        with self._storage.open_input(path) as stream:
            return pq.read_table(stream, columns=["uri", "sha256"])

    def _parts(self, manifest: Manifest) -> Iterator[pa.Table]:
        return (self._read(part.path) for part in manifest.inputs)

    def named(self, version: DatasetVersion, source: str) -> set[str]:
        """The URIs of a version that a person means by ``source``."""
        prefix = version.manifest.source.rstrip("/") + "/"
        shown, named = source.removeprefix(prefix), uri_of(source).removeprefix(prefix)
        wanted = pa.array(sorted({shown, named} if is_text(shown) else {named}), pa.string())
        found: set[str] = set()
        for part in self._parts(version.manifest):
            found |= set(part["uri"].filter(pc.is_in(part["uri"], wanted)).to_pylist())
        return found

    def digests_of(self, manifest: Manifest, uris: Iterable[str]) -> set[str]:
        """SHA-256 of every content that a version saw under one of these URIs."""
        wanted = pa.array(sorted(uris), pa.string())
        found: set[str] = set()
        for part in self._parts(manifest):
            found |= set(part["sha256"].filter(pc.is_in(part["uri"], wanted)).drop_null().to_pylist())
        return found

    def matching(self, manifest: Manifest, wanted: ToPurge) -> list[str]:
        """The URIs of the rows of a version that go."""
        return [
            uri
            for part in self._parts(manifest)
            for uri in part["uri"].filter(wanted.matches(part)).to_pylist()
        ]


def read_journal(storage: Storage) -> list[str]:
    """The URIs of a purge that was killed; empty where none was.

    Raises:
        CorruptDataError: the journal is not readable.
    """
    try:
        return [str(uri) for uri in json.loads(storage.read_bytes(JOURNAL_FILE))["uris"]]
    except NotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptDataError(
            f"{storage.uri}/{JOURNAL_FILE} is not readable: {error}",
            "delete it, and purge the same sources again",
        ) from error


def write_journal(storage: Storage, wanted: ToPurge) -> None:
    """Note what is to go, until it has gone."""
    storage.write_atomic(JOURNAL_FILE, json.dumps({"uris": wanted.uris}).encode())
