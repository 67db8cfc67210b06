"""One published version of a dataset, or a view of it: its manifest, indexes and inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.infra.arguments import checked
from shardmill.infra.dataset.views.references import Reference
from shardmill.infra.digests import digest_of, sha256_hex
from shardmill.infra.errors import CorruptDataError, NotFoundError
from shardmill.infra.format.contract import INDEX_SCHEMA, INPUTS_SCHEMA, Manifest, Shard, class_counts_of
from shardmill.infra.format.known_features import LABELS
from shardmill.infra.format.layout import manifest_file
from shardmill.infra.storage.filesystem import Storage

# Queries and scans load pyarrow.compute, a tenth of the time of a first batch: imported where they are used.
if TYPE_CHECKING:
    import pyarrow.dataset as pads

    from shardmill.infra.dataset.views.view import View


@checked
class DatasetVersion:
    """One published version: its manifest and the folder of the dataset, where the manifest's paths start.

    Methods that read a file raise ``CorruptDataError``: it is missing, unreadable or not the manifest's.

    Attributes:
        storage: the folder of the dataset.
        manifest: manifest of the version.
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
    def is_whole(self) -> bool:
        """Whether these are all records of a published version."""
        return self.view is None

    @property
    def is_joined(self) -> bool:
        """Whether versions are read as one under a reference of their own."""
        return False

    @property
    def data_sets(self) -> tuple[DatasetVersion, ...]:
        """The versions or views that are read as one: this one, if there are not several."""
        return (self,)

    def data_set_of(self, shard: Shard) -> DatasetVersion:
        """Return the version or view whose records a shard has."""
        return self

    def view_columns(self, shard: Shard) -> list[str]:
        """Return the columns of a shard's index by which ``select`` chooses rows."""
        return [] if self.view is None else self.view.fields.names

    def knows_classes(self, number: int) -> list[bool]:
        """Return for each class whether the data set ``number`` has it."""
        return [True] * len(self.manifest.classes)

    def joined_label(self, number: int, label: int) -> int:
        """Return the number that a class of the data set ``number`` has among the classes of all of them."""
        return label

    def why_not_joined(self, name: str) -> str | None:
        """Say how a feature differs between data sets that are read as one; None: it does not."""
        return None

    @property
    def manifest_sha256(self) -> str:
        """The SHA-256 of the file of the manifest."""
        return sha256_hex(self.storage.read_bytes(manifest_file(self.version)))

    @property
    def view_digest(self) -> str | None:
        """Digest of the content of a view: of its query and of the shards; None: the whole version."""
        if self.view is None:
            return None
        shards = [shard.sha256 for shard in self.manifest.shards]
        return digest_of({"query": self.view.query, "classes": self.manifest.classes, "shards": shards})

    def describe_view(self) -> dict[str, Any]:
        """The part of a command's result about the view, JSON-able; empty for a whole version."""
        if self.view is None:
            return {}
        return {"view": {"query": self.view.query, "digest": self.view_digest}}

    def query(self, text: str) -> DatasetVersion:
        """Return the view of the records for which a query is true; of a view, those that fulfil both.

        Raises:
            UsageError: the query is wrong.
        """
        from shardmill.infra.dataset.views.view import view_of

        both = text if self.view is None else f"({self.view.query}) and ({text})"
        view = view_of(both, index_schema(self), self.manifest.classes)
        return DatasetVersion(self.storage, self.manifest, view)

    def shards(self, split: str) -> list[Shard]:
        """The shards of a split, in the manifest's order; empty if there is no such split."""
        return [shard for shard in self.manifest.shards if shard.split == split]

    def index(self, shard: Shard) -> pa.Table:
        """The index of a shard (INDEX_SCHEMA): one row for each record, in stored order."""
        table = self.table(shard.index_path)
        if table.num_rows != shard.num_examples:
            raise CorruptDataError(
                f"{shard.index_path} has {table.num_rows} rows, the manifest of {self.ref} says "
                f"{shard.num_examples}",
                f"run `shardmill verify {self.ref}`",
            )
        return table

    def scan(self, columns: Sequence[str] | None = None) -> pads.Scanner:
        """Return a scan of the indexes, which reads nothing yet: a row for each record, in stored order.

        Args:
            columns: the columns to read; None: ``split``, ``label_name`` and all columns of the index.

        Raises:
            NotFoundError: there is no such column.
        """
        from shardmill.infra.dataset.views.view import scanner

        return scanner(self, index_schema(self), columns)

    def rows(self, shard: Shard, columns: Sequence[str] | None = None) -> pa.Table:
        """Columns of the index of a shard, in stored order; of a view the rows of its records alone."""
        if self.view is None or columns is None:
            return self.select(shard, self.table(shard.index_path, columns))
        table = self.table(shard.index_path, sorted({*columns, *self.view_columns(shard)}))
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
        """A Parquet file of the version, checked against its SHA-256."""
        try:
            data = self.storage.read_bytes(path)
        except NotFoundError as error:
            raise self._missing(path) from error
        if sha256_hex(data) != sha256:
            raise CorruptDataError(
                f"{path} was changed: its SHA-256 differs from the manifest's", self._verify
            )
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

    def check_whole(self) -> None:
        """Check that no file is missing and each has its size.

        Raises:
            CorruptDataError: one is not as it was written.
        """
        if missing := self.missing_files():
            ref = f"{self.name}@{self.version}"
            raise CorruptDataError(
                f"{self.ref} is not whole: {missing[0]} is not as it was written",
                f"run `shardmill verify {ref}`; restore the file from a copy",
            )

    def table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A Parquet file of the version, or some of its columns."""
        try:
            with self.storage.open_input(path) as stream:
                return read_parquet(stream, columns=columns)
        except NotFoundError as error:
            raise self._missing(path) from error
        except pa.ArrowException as error:
            problem = f"{path} is not a readable Parquet file: {error}"
            raise CorruptDataError(problem, self._verify) from error

    def _missing(self, path: str) -> CorruptDataError:
        return CorruptDataError(f"{self.ref} names {path}, which is not there", self._verify)

    @property
    def _verify(self) -> str:
        return f"run `shardmill verify {self.ref}`, which says how to mend it"


def index_schema(version: DatasetVersion) -> pa.Schema:
    """The columns of all indexes of a version. The shards of one plan have the same columns."""
    of_plan: dict[str, Shard] = {}
    for shard in version.manifest.shards:
        of_plan.setdefault(shard.index_path.rpartition("/")[0], shard)
    schemas = []
    for shard in of_plan.values():
        with version.storage.open_input(shard.index_path) as stream:
            schemas.append(pq.read_schema(stream).remove_metadata())
    return pa.unify_schemas(schemas, promote_options="permissive") if schemas else INDEX_SCHEMA


def read_parquet(source: bytes | pa.NativeFile, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a Parquet file, or some of its columns.

    Bytes and Python files are read on the calling thread only. Otherwise a thread of Arrow may hold the last
    reference to the Python object, and the process aborts if the interpreter ends at that moment
    (apache/arrow#34314). Arrow's own files hold no Python object, so several threads read them.

    Args:
        source: the content of the file, or an open file.
        columns: the columns to read; None: all.

    Raises:
        pyarrow.ArrowException: it is not a readable Parquet file.
    """
    if isinstance(source, bytes):
        source = pa.BufferReader(source)
        threads = False
    else:
        threads = not isinstance(source, pa.PythonFile)
    with pq.ParquetFile(source, pre_buffer=threads) as file:
        return file.read(columns=None if columns is None else list(columns), use_threads=threads)
