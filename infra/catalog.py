"""The versions of the datasets under one root: what is there, and the one write that publishes."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from infra.contract import (
    INPUTS_SCHEMA,
    Manifest,
    Shard,
    check_dataset_name,
    manifest_file,
    version_of_manifest,
)
from infra.digests import sha256_hex
from infra.errors import CorruptDataError, NotFoundError
from infra.storage import Storage


class DatasetVersion:
    """One published version: its manifest and the folder that the manifest's paths are relative to."""

    def __init__(self, storage: Storage, manifest: Manifest) -> None:
        self.storage = storage
        self.manifest = manifest

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
        """``name@version``."""
        return f"{self.name}@{self.version}"

    def shards(self, split: str) -> list[Shard]:
        """The shards of a split, in the manifest's order; empty where it has no such split."""
        return [shard for shard in self.manifest.shards if shard.split == split]

    def index(self, shard: Shard) -> pa.Table:
        """A shard's index (INDEX_SCHEMA), a row a record in stored order.

        Raises:
            CorruptDataError: it does not fit its manifest.
        """
        table = self.table(shard.index_path)
        if table.num_rows != shard.num_examples:
            raise CorruptDataError(
                f"{shard.index_path} has {table.num_rows} rows, the manifest of {self.ref} says "
                f"{shard.num_examples}",
                f"run `shardmill verify {self.ref}`",
            )
        return table

    def inputs(self, without: Collection[str] = ()) -> pa.Table:
        """The row of every input (INPUTS_SCHEMA), all parts together, sorted by URI.

        Args:
            without: paths of parts to leave out.
        """
        parts = [self.table(part.path) for part in self.manifest.inputs if part.path not in without]
        return pa.concat_tables([INPUTS_SCHEMA.empty_table(), *parts])

    def checked_table(self, path: str, sha256: str) -> pa.Table:
        """A Parquet file of the version, if it is byte for byte what was written.

        Raises:
            CorruptDataError: it is not, or not there. StorageError: it cannot be read.
        """
        try:
            data = self.storage.read_bytes(path)
        except NotFoundError as error:
            raise self._missing(path) from error
        if sha256_hex(data) != sha256:
            raise CorruptDataError(f"{path} is not what was written: its SHA-256 differs from the manifest's")
        return pq.read_table(pa.BufferReader(data))

    def present_files(self) -> dict[str, int]:
        """Path -> size (bytes), of all that lies in the folders that the manifest names."""
        folders = {path.rpartition("/")[0] for path in self.manifest.files()}
        return {entry.path: entry.size_bytes for at in folders for entry in self.storage.list_files(at)}

    def missing_files(self) -> list[str]:
        """Paths of the files of the version that are not there, or not of their size."""
        present = self.present_files()
        # Of a report no size is known; an empty one is none.
        return [
            path
            for path, size in self.manifest.files().items()
            if (present.get(path) != size if size is not None else not present.get(path))
        ]

    def table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A Parquet file of the version, or some columns of it.

        Raises:
            CorruptDataError: it is not there, or not readable.
        """
        try:
            with self.storage.open_input(path) as stream:
                return pq.read_table(stream, columns=columns)
        except NotFoundError as error:
            raise self._missing(path) from error
        except pa.ArrowException as error:
            raise CorruptDataError(f"{path} is not a readable Parquet file: {error}") from error

    def _missing(self, path: str) -> CorruptDataError:
        return CorruptDataError(
            f"{self.ref} names {path}, which is not there", f"run `shardmill verify {self.ref}`"
        )


class Catalog:
    """The datasets under one root (a local folder or an object-store URI)."""

    def __init__(self, root: str | Path) -> None:
        self.storage = Storage.at(root)

    def dataset_storage(self, name: str) -> Storage:
        """The folder of a dataset, which need not exist yet."""
        return self.storage.child(check_dataset_name(name))

    def datasets(self) -> list[str]:
        """Names of the datasets that have a published version, sorted."""
        return [name for name in self.storage.list_folders() if self.versions(name)]

    def versions(self, name: str) -> list[int]:
        """Numbers of the published versions, rising."""
        entries = self.storage.list_files(f"{name}/manifests", recursive=False)
        found = (version_of_manifest(entry.path.rsplit("/", 1)[-1]) for entry in entries)
        return sorted(version for version in found if version is not None)

    def next_version(self, name: str) -> int:
        """The number that the next publication takes."""
        return max(self.versions(name), default=0) + 1

    def open(self, ref: str) -> DatasetVersion:
        """The version that ``name``, ``name@3`` or ``name@latest`` means; without a number, the newest.

        Raises:
            NotFoundError: there is no such dataset or version; says which there are.
            FormatVersionError: it was written under another format.
        """
        name, _, wanted = ref.partition("@")
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
        """The newest version, or None where nothing is published."""
        versions = self.versions(check_dataset_name(name))
        return self._load(name, versions[-1]) if versions else None

    def _load(self, name: str, version: int) -> DatasetVersion:
        storage = self.dataset_storage(name)
        path = manifest_file(version)
        manifest = Manifest.from_json(storage.read_bytes(path), path=f"{storage.uri}/{path}")
        return DatasetVersion(storage, manifest)

    def publish(self, manifest: Manifest) -> DatasetVersion:
        """Make a version visible, by the creation of its manifest and only that.

        Raises:
            PublishConflict: another writer published this number first.
        """
        storage = self.dataset_storage(manifest.dataset)
        storage.create_if_absent(manifest_file(manifest.version), manifest.to_json())
        return DatasetVersion(storage, manifest)

    def _no_such_dataset(self, name: str) -> NotFoundError:
        known = self.datasets()
        near = difflib.get_close_matches(name, known, n=1)
        if near:
            remedy = f"did you mean {near[0]!r}?"
        elif known:
            remedy = f"there are: {', '.join(known[:20])}"
        else:
            remedy = "there are none yet: `shardmill prepare SOURCE --dataset NAME` makes one"
        return NotFoundError(f"no dataset {name!r} under {self.storage.uri}", remedy)
