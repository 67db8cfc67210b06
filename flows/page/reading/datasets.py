"""Read the datasets under the root. A damaged manifest becomes a row with the error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from shardmill.flows.page.reading.remembered import ForSeconds, Remembered
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ShardmillError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.format.layout import version_of_manifest
from shardmill.infra.storage.locations import check_dataset_name

_VERSIONS_KEPT = 5_000
_LIST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version, as lists of versions show it.

    Attributes:
        dataset, version: name and number.
        published: when its manifest was written (seconds since 1970).
        source, parent: where it comes from, and the version before.
        outcomes: ``inputs``, ``records``, ``duplicates``, ``filtered`` and ``quarantined``.
        splits: split -> examples.
        num_classes, num_shards, num_bytes: of the version.
        problem: why the manifest could not be read; None: all else holds.
    """

    dataset: str
    version: int
    published: float
    source: str = ""
    parent: int | None = None
    outcomes: dict[str, int] = field(default_factory=dict)
    splits: dict[str, int] = field(default_factory=dict)
    num_classes: int = 0
    num_shards: int = 0
    num_bytes: int = 0
    problem: str | None = None

    @property
    def ref(self) -> str:
        """``name@version``."""
        return f"{self.dataset}@{self.version}"


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """One dataset: its newest version, and how many there are.

    Attributes:
        name: name of the folder.
        num_versions: published ones.
        newest: None: nothing is published, or nothing can be read.
        problem: why it cannot be shown.
    """

    name: str
    num_versions: int = 0
    newest: VersionRow | None = None
    problem: str | None = None


class Datasets:
    """Reads the datasets for the page; remembers rows as long as their manifests stay the same."""

    def __init__(self, root: str) -> None:
        self.catalog = Catalog(root)
        self._rows: Remembered[VersionRow] = Remembered(_VERSIONS_KEPT)
        self._names = ForSeconds(_LIST_SECONDS, self._list_names)

    @property
    def uri(self) -> str:
        """The root, without credentials."""
        return self.catalog.storage.uri

    def names(self) -> list[str]:
        """Return the names of all folders that may be datasets, sorted.

        Raises:
            StorageError: the root cannot be listed.
        """
        return self._names.get()

    def _list_names(self) -> list[str]:
        return [name for name in self.catalog.storage.list_folders() if not name.startswith(".")]

    def row(self, name: str) -> DatasetRow:
        """Return the row of a dataset; for a damaged one, a row with the error."""
        try:
            check_dataset_name(name)
            published = self._published(name)
        except ShardmillError as error:
            return DatasetRow(name, problem=str(error))
        if not published:
            return DatasetRow(name, problem="nothing is published yet")
        number = max(published)
        return DatasetRow(name, len(published), self._version_row(name, number, published[number]))

    def versions(self, name: str) -> list[int]:
        """Return the numbers of the published versions, the newest first.

        Raises:
            ConfigError: no dataset can have this name. StorageError: the folder cannot be listed.
        """
        return sorted(self._published(check_dataset_name(name)), reverse=True)

    def version_rows(self, name: str, numbers: Sequence[int]) -> list[VersionRow]:
        """Return a row for each of these versions."""
        published = self._published(check_dataset_name(name))
        return [self._version_row(name, number, published.get(number, 0)) for number in numbers]

    def newest_rows(self, most: int) -> list[VersionRow]:
        """Return the versions of all datasets that were published last, the newest first."""
        found: list[tuple[int, str, int]] = []
        for name in self.names():
            try:
                published = self._published(check_dataset_name(name))
            except ShardmillError:
                continue  # the list of datasets names the problem
            found += [(changed, name, number) for number, changed in published.items()]
        found.sort(reverse=True)
        return [self._version_row(name, number, changed) for changed, name, number in found[:most]]

    def open(self, name: str, number: int) -> DatasetVersion:
        """Open a version.

        Raises:
            NotFoundError, FormatVersionError, CorruptDataError, StorageError: as ``Catalog.open``.
            ConfigError: no dataset can have this name.
        """
        return self.catalog.open(f"{check_dataset_name(name)}@{number}")

    def _published(self, name: str) -> dict[int, int]:
        """Return number of a version -> when its manifest was written (ns)."""
        entries = self.catalog.storage.list_files(f"{name}/manifests", recursive=False)
        numbered = [(version_of_manifest(entry.path.rpartition("/")[2]), entry) for entry in entries]
        return {number: entry.mtime_ns for number, entry in numbered if number is not None}

    def _version_row(self, name: str, number: int, changed: int) -> VersionRow:
        return self._rows.get((name, number), changed, lambda: self._read_row(name, number, changed))

    def _read_row(self, name: str, number: int, changed: int) -> VersionRow:
        try:
            return _row_of(self.open(name, number).manifest)
        except (ShardmillError, ValueError, RecursionError) as error:
            return VersionRow(name, number, changed / 1e9, problem=str(error))


def _row_of(manifest: Manifest) -> VersionRow:
    accounting = manifest.accounting
    return VersionRow(
        manifest.dataset,
        manifest.version,
        _seconds(manifest.created_at),
        manifest.source,
        manifest.parent,
        {
            "inputs": accounting.num_inputs,
            "records": accounting.num_records,
            "duplicates": accounting.num_duplicates,
            "filtered": accounting.num_filtered,
            "quarantined": accounting.num_quarantined,
        },
        {split: summary.num_examples for split, summary in manifest.splits.items()},
        len(manifest.classes),
        len(manifest.shards),
        sum(shard.num_bytes for shard in manifest.shards),
    )


def _seconds(created_at: str) -> float:
    """Return seconds since 1970 of an ISO 8601 time; 0 for any other text."""
    try:
        moment = datetime.fromisoformat(created_at)
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
