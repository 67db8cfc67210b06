"""The published versions of the datasets under one root, and the write that publishes a version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

from infra.dataset.croissant import write_croissant
from infra.dataset.views.references import Reference, parse_reference
from infra.dataset.views.scanning import index_schema, scan
from infra.dataset.views.view import View, view_of
from infra.digests import digest_of, sha256_hex
from infra.errors import (
    CorruptDataError,
    DataError,
    EnvironmentFault,
    NotFoundError,
    UsageError,
    near_miss,
)
from infra.format.contract import INPUTS_SCHEMA, Manifest, Shard, class_counts_of
from infra.format.labels import LABELS
from infra.format.layout import croissant_file, manifest_file, version_of_manifest
from infra.format.parquet import read_parquet
from infra.format.stored_manifest import decode_manifest, encode_manifest
from infra.progress import log
from infra.storage.filesystem import Storage
from infra.storage.names import check_dataset_name


class DatasetVersion:
    """One published version: its manifest and the folder of the dataset, where the manifest's paths start.

    Attributes:
        storage: the folder of the dataset.
        manifest: of the version.
        view: selects records of the version; None: all of them. The manifest is always of the whole version.
    """

    def __init__(self, storage: Storage, manifest: Manifest, view: View | None = None) -> None:
        self.storage = storage
        self.manifest = manifest
        self.view = view

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return self.manifest.dataset

    @property
    def version(self) -> int:
        """Number of the version."""
        return self.manifest.version

    @property
    def ref(self) -> str:
        """``name@version``, of a view ``name@version?query``."""
        return str(Reference(self.name, str(self.version), self.view.query if self.view else None))

    @property
    def view_digest(self) -> str | None:
        """Digest of the content of a view: of its query and of the shards; None: the whole version."""
        if self.view is None:
            return None
        shards = [shard.sha256 for shard in self.manifest.shards]
        return digest_of({"query": self.view.query, "classes": self.manifest.classes, "shards": shards})

    def describe_view(self) -> dict[str, Any]:
        """What the results of a command say of the view, JSON-able; empty for a whole version."""
        if self.view is None:
            return {}
        return {"view": {"query": self.view.query, "digest": self.view_digest}}

    def query(self, text: str) -> DatasetVersion:
        """Return the view of the records for which a query is true; of a view, those that fulfil both.

        Raises:
            UsageError: the query is wrong.
        """
        both = text if self.view is None else f"({self.view.query}) and ({text})"
        view = view_of(both, index_schema(self), self.manifest.classes)
        return DatasetVersion(self.storage, self.manifest, view)

    def shards(self, split: str) -> list[Shard]:
        """The shards of a split, in the manifest's order; empty if there is no such split."""
        return [shard for shard in self.manifest.shards if shard.split == split]

    def index(self, shard: Shard) -> pa.Table:
        """The index of a shard (INDEX_SCHEMA): one row for each record, in stored order.

        Raises:
            CorruptDataError: its number of rows is not the manifest's.
        """
        table = self.table(shard.index_path)
        if table.num_rows != shard.num_examples:
            raise CorruptDataError(
                f"{shard.index_path} has {table.num_rows} rows, the manifest of {self.ref} says "
                f"{shard.num_examples}",
                f"run `shardmill verify {self.ref}`",
            )
        return table

    def scan(self, columns: Sequence[str] | None = None) -> pads.Scanner:
        """Return the indexes as a lazy Arrow table; see ``infra.dataset.views.scanning``."""
        return scan(self, columns)

    def rows(self, shard: Shard, columns: Sequence[str] | None = None) -> pa.Table:
        """Columns of the index of a shard, in stored order; of a view the rows of its records alone.

        Raises:
            CorruptDataError: the index is missing or not readable.
        """
        if self.view is None or columns is None:
            return self.select(shard, self.table(shard.index_path, columns))
        table = self.table(shard.index_path, sorted({*columns, *self.view.fields.names}))
        return self.select(shard, table).select([name for name in columns if name in table.column_names])

    def select(self, shard: Shard, index: pa.Table) -> pa.Table:
        """Those rows of a shard's index whose records are in this version or view.

        Args:
            shard: the shard.
            index: its rows, with the columns of the view.
        """
        classes = self.manifest.classes
        return index if self.view is None else self.view.select(index, shard.split, classes)

    def count_classes(self, split: str) -> dict[str, int]:
        """Class name -> number of the records of a split; of a view, those that it selects."""
        if self.view is None:
            summary = self.manifest.splits.get(split)
            return dict(summary.class_counts) if summary else {}
        counts: Counter[str] = Counter()
        for shard in self.shards(split):
            counts.update(class_counts_of(self.rows(shard, ["label", LABELS]), self.manifest.classes))
        return {name: counts[name] for name in self.manifest.classes if counts[name]}

    def num_examples(self, split: str) -> int:
        """The number of the records of a split; of a view, those that it selects."""
        if self.view is None:
            summary = self.manifest.splits.get(split)
            return summary.num_examples if summary else 0
        return sum(self.rows(shard, ["id"]).num_rows for shard in self.shards(split))

    def inputs(self, without: Collection[str] = ()) -> pa.Table:
        """The rows of all inputs (INPUTS_SCHEMA), sorted by URI.

        Args:
            without: paths of the parts to leave out.
        """
        parts = [self.table(part.path) for part in self.manifest.inputs if part.path not in without]
        return pa.concat_tables([INPUTS_SCHEMA.empty_table(), *parts])

    def checked_table(self, path: str, sha256: str) -> pa.Table:
        """A Parquet file of the version, checked against its SHA-256.

        Raises:
            CorruptDataError: the file is missing or has other bytes. StorageError: it cannot be read.
        """
        try:
            data = self.storage.read_bytes(path)
        except NotFoundError as error:
            raise self._missing(path) from error
        if sha256_hex(data) != sha256:
            raise CorruptDataError(f"{path} was changed: its SHA-256 differs from the manifest's")
        return read_parquet(data)

    def present_files(self) -> dict[str, int]:
        """Path -> size (bytes) of all files in the folders that the manifest names."""
        folders = {path.rpartition("/")[0] for path in self.manifest.files()}
        return {entry.path: entry.size_bytes for at in folders for entry in self.storage.list_files(at)}

    def missing_files(self) -> list[str]:
        """Paths of the files of the version that are missing or have another size."""
        present = self.present_files()
        # The manifest has no size for the report; an empty one counts as missing.
        return [
            path
            for path, size in self.manifest.files().items()
            if (present.get(path) != size if size is not None else not present.get(path))
        ]

    def table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A Parquet file of the version, or some of its columns.

        Raises:
            CorruptDataError: the file is missing or not readable.
        """
        try:
            with self.storage.open_input(path) as stream:
                return read_parquet(stream, columns=columns)
        except NotFoundError as error:
            raise self._missing(path) from error
        except pa.ArrowException as error:
            raise CorruptDataError(f"{path} is not a readable Parquet file: {error}") from error

    def _missing(self, path: str) -> CorruptDataError:
        return CorruptDataError(
            f"{self.ref} names {path}, which is not there", f"run `shardmill verify {self.ref}`"
        )


def load_version(storage: Storage, name: str, version: int) -> DatasetVersion:
    """Read the manifest of a version, and check that it is the manifest of this version.

    Args:
        storage: the dataset's folder.
        name: of the dataset.
        version: its number.

    Raises:
        NotFoundError: there is no such manifest. FormatVersionError: it was written under another format.
        CorruptDataError: it was altered, or belongs to another dataset or version.
    """
    path = manifest_file(version)
    place = f"{storage.uri}/{path}"
    manifest = decode_manifest(storage.read_bytes(path), path=place)
    if (manifest.dataset, manifest.version) != (name, version):
        raise CorruptDataError(
            f"{place} is the manifest of {manifest.dataset}@{manifest.version}, not of {name}@{version}",
            "a manifest keeps its file name and a dataset its folder's name: undo the copy or renaming",
        )
    return DatasetVersion(storage, manifest)


class Catalog:
    """The datasets under one root (a local folder or an object-store URI)."""

    def __init__(self, root: str | Path) -> None:
        self.storage = Storage.at(root)

    def dataset_storage(self, name: str) -> Storage:
        """The folder of a dataset, which need not exist yet."""
        return self.storage.child(check_dataset_name(name))

    def datasets(self) -> list[str]:
        """Sorted names of the datasets that have a published version."""
        return [name for name in self.storage.list_folders() if self.versions(name)]

    def versions(self, name: str) -> list[int]:
        """Numbers of the published versions, in ascending order."""
        entries = self.storage.list_files(f"{name}/manifests", recursive=False)
        found = (version_of_manifest(entry.path.rsplit("/", 1)[-1]) for entry in entries)
        return sorted(version for version in found if version is not None)

    def next_version(self, name: str) -> int:
        """The number of the next version to publish."""
        return max(self.versions(name), default=0) + 1

    def open_view(self, ref: str) -> DatasetVersion:
        """Open a version as ``open`` does, or a view of it: ``name@3?width > 800``.

        Raises:
            UsageError: the query is wrong.
            NotFoundError, FormatVersionError, CorruptDataError: as ``open``.
        """
        asked = parse_reference(ref)
        whole = self.open(str(Reference(asked.name, asked.version)))
        return whole if asked.query is None else whole.query(asked.query)

    def open(self, ref: str) -> DatasetVersion:
        """Open the version ``name@3``, or with ``name`` or ``name@latest`` the newest.

        Raises:
            NotFoundError: there is no such dataset or version; says which there are.
            UsageError: it names a view.
            FormatVersionError: it was written under another format.
            CorruptDataError: its manifest was altered, or belongs to another version.
        """
        asked = parse_reference(ref)
        name, wanted = asked.name, asked.version
        if asked.query is not None:
            raise UsageError(f"{ref!r} is a view", f"this needs a whole version: {Reference(name, wanted)}")
        check_dataset_name(name)
        versions = self.versions(name)
        if not versions:
            raise self._no_such_dataset(name)
        if wanted in ("", "latest"):
            version = versions[-1]
        elif wanted.isascii() and wanted.isdecimal() and int(wanted) in versions:
            version = int(wanted)
        else:
            known = ", ".join(str(number) for number in versions)
            raise NotFoundError(f"dataset {name} has no version {wanted!r}", f"it has: {known}")
        return self._load(name, version)

    def latest(self, name: str) -> DatasetVersion | None:
        """The newest version, or None if nothing is published."""
        versions = self.versions(check_dataset_name(name))
        return self._load(name, versions[-1]) if versions else None

    def _load(self, name: str, version: int) -> DatasetVersion:
        return load_version(self.dataset_storage(name), name, version)

    def publish(self, manifest: Manifest) -> DatasetVersion:
        """Publish a version by creating its manifest, and describe it as Croissant.

        Raises:
            PublishConflict: another writer published this number first.
        """
        storage = self.dataset_storage(manifest.dataset)
        storage.create_if_absent(manifest_file(manifest.version), encode_manifest(manifest))
        write_croissant(storage, manifest)
        self._describe_parent(storage, manifest)
        return DatasetVersion(storage, manifest)

    def _describe_parent(self, storage: Storage, manifest: Manifest) -> None:
        """Write the description of the version before, if its writer was killed or knew none."""
        number = manifest.parent
        try:
            if number is not None and not storage.exists(croissant_file(number)):
                write_croissant(storage, self._load(manifest.dataset, number).manifest)
        except (EnvironmentFault, NotFoundError, DataError) as error:
            log(f"{manifest.dataset}@{number} has no description: {error}", level="warning")

    def _no_such_dataset(self, name: str) -> NotFoundError:
        known = self.datasets()
        none = "there are none yet: `shardmill prepare SOURCE --dataset NAME` makes one"
        remedy = near_miss(name, known) or none
        return NotFoundError(f"no dataset {name!r} under {self.storage.uri}", remedy)
