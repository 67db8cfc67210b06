"""``predictions-<split>.parquet``: written while a split is evaluated, read in parts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.locations import uri_of
from shardmill.infra.strict_json import dump_json
from shardmill.training.arrays import Ints
from shardmill.training.metrics.evaluation import Rows
from shardmill.training.reading import SplitTable
from shardmill.training.tasks.arrow_lists import numbers_of
from shardmill.training.tasks.kind import TaskKind
from shardmill.training.tasks.registry import KINDS

COMMON_COLUMNS = {
    "id": pa.string(),  # of the record
    "source_uri": pa.string(),  # relative to the source of the dataset
    "loss": pa.float32(),  # of the task, without label smoothing
}
DATA_SET = "data_set"  # of a record; a column where several are read as one
_SINGLE_LABEL = KINDS["single-label"]
_METADATA = b"shardmill"
_GROUP_BYTES = 1 << 23  # in memory, of a row group

LEFT_OUT_FILE = "predictions-left-out.parquet"  # predictions of the fold that a run left out


def predictions_file(split: str) -> str:
    """Return the name of the file of a split, in the folder of the run."""
    return f"predictions-{split}.parquet"


class PredictionsWriter:
    """Writes the predictions of a model, in memory for one row group.

    A context manager; the file appears when the block ends without an error. Implements
    ``shardmill.training.run.framework.Sink``.
    """

    def __init__(
        self,
        folder: Storage,
        version: DatasetVersion,
        table: SplitTable,
        name: str | None = None,
        kind: TaskKind = _SINGLE_LABEL,
    ) -> None:
        """Prepare to write predictions.

        Args:
            folder: the folder of the file.
            version: the dataset version.
            table: the records of the split.
            name: name of the file; None: that of the split.
            kind: the kind of the task.
        """
        self._folder = folder
        self._kind = kind
        self._name = name or predictions_file(table.split)
        self._version = version
        self._table = table
        self._names = [uri_of(name) for name in version.manifest.label_names]
        self._sources = _Sources(version, table)
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._ends = ExitStack()
        about = {"dataset": version.ref, "split": table.split, "classes": self._names, "task": kind.name}
        self._refs = pa.array([one.ref for one in version.data_sets], pa.string())
        of_set = {DATA_SET: pa.string()} if version.is_joined else {}
        fields = {**COMMON_COLUMNS, **of_set, **kind.fields}
        self._schema = pa.schema(fields, metadata={_METADATA: dump_json(about).encode("ascii")})

    def __enter__(self) -> Self:
        stream: AbstractContextManager[Any] = self._folder.atomic_writer(self._name)
        opened = self._ends.enter_context(stream)
        self._file = self._ends.enter_context(pq.ParquetWriter(opened, self._schema, compression="zstd"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._write()
        self._ends.__exit__(kind, error, trace)

    def add(self, ordinals: Ints, labels: Any, rows: Rows) -> None:
        """Add n predictions; see ``Sink.add``."""
        columns = [
            pa.array(self._table.ids(ordinals), pa.string()),
            pa.array(self._sources.of(ordinals), pa.string()),
            pa.array(rows["losses"].astype(np.float32)),
            *self._data_sets(ordinals),
            *self._kind.arrays(self._names, labels, rows),
        ]
        self._pending.append(pa.table(columns, schema=self._schema))
        self._pending_bytes += self._pending[-1].nbytes
        if self._pending_bytes >= _GROUP_BYTES:
            self._write()

    def _data_sets(self, ordinals: Ints) -> list[pa.Array]:
        if not self._version.is_joined:
            return []
        return [self._refs.take(pa.array(self._table.data_set_of(ordinals)))]

    def _write(self) -> None:
        if self._pending:
            self._file.write_table(pa.concat_tables(self._pending))
        self._pending, self._pending_bytes = [], 0


class _Sources:
    """The source URIs of records, with one index in memory at a time: evaluation is in stored order."""

    def __init__(self, version: DatasetVersion, table: SplitTable) -> None:
        self._version = version
        self._table = table
        self._shards = version.shards(table.split)
        self._firsts = np.concatenate([[0], np.cumsum(table.shard_sizes)])
        self._shard, self._uris = -1, pa.array([], pa.string())

    def of(self, ordinals: Ints) -> list[str]:
        """Return the source URI of each record; empty where the index has none."""
        found = []
        for ordinal in ordinals.tolist():
            shard = int(self._table.shard[ordinal])
            if shard != self._shard:
                rows = self._version.rows(self._shards[shard], ["source_uri"])
                self._shard, self._uris = shard, rows["source_uri"].combine_chunks()
            found.append(self._uris[ordinal - int(self._firsts[shard])].as_py() or "")
        return found


def join_predictions(paths: Sequence[Path], folder: Storage, name: str) -> None:
    """Write the rows of several files of predictions, one after the other, to a file of the same kind.

    Raises:
        CorruptDataError: one is no such file.
    """
    schema = _opened(paths[0]).schema_arrow
    with folder.atomic_writer(name) as stream, pq.ParquetWriter(stream, schema, compression="zstd") as file:
        for path in paths:
            for rows in read_predictions(path, schema.names):
                file.write_table(rows.cast(schema))


def read_classes(path: Path) -> list[str]:
    """Return the names of the classes, or of the targets, of a file of predictions, as text.

    Raises:
        CorruptDataError: it is no such file.
    """
    return list(_about(path)["classes"])


def has_one_label(path: Path) -> bool:
    """Return whether the predictions are of a single-label classifier.

    Raises:
        CorruptDataError: it is no such file.
    """
    return kind_in(path) is _SINGLE_LABEL


def kind_in(path: Path) -> TaskKind:
    """Return the kind of the task that a file of predictions is of.

    Raises:
        CorruptDataError: it is no such file.
    """
    task = str(_about(path).get("task", _SINGLE_LABEL.name))
    if task not in KINDS:
        raise CorruptDataError(f"{path} has predictions of the task {task!r}, which is unknown")
    return KINDS[task]


def _about(path: Path) -> dict[str, Any]:
    metadata = _opened(path).schema_arrow.metadata or {}
    try:
        about: dict[str, Any] = json.loads(metadata[_METADATA])
    except (KeyError, ValueError) as error:
        raise CorruptDataError(f"{path} is not a file of predictions") from error
    return about


def num_predictions(path: Path) -> int:
    """Return the number of rows of a file of predictions.

    Raises:
        CorruptDataError: it is no such file.
    """
    return int(_opened(path).metadata.num_rows)


def read_predictions(path: Path, columns: list[str]) -> Iterator[pa.Table]:
    """Yield the rows of a file of predictions in parts, as many as its task decodes at a time.

    Args:
        path: the file.
        columns: the names of the columns to read; one that the file lacks is left out.

    Raises:
        CorruptDataError: it is no such file.
    """
    rows_together = kind_in(path).rows_together
    # On this thread: a process may end while threads of Arrow are still at work.
    for batch in _opened(path).iter_batches(rows_together, columns=columns, use_threads=False):
        yield pa.Table.from_batches([batch])


def read_all(path: Path, columns: list[str]) -> pa.Table:
    """Return all rows of a file of predictions, with those of the given columns that it has.

    Raises:
        CorruptDataError: it is no such file.
    """
    return _opened(path).read(columns=columns, use_threads=False)


def data_set_in(rows: pa.Table, row: int) -> str:
    """Return the reference of the data set of a row; empty: there is one for all."""
    return rows[DATA_SET][row].as_py() if DATA_SET in rows.column_names else ""


def placed(data_set: str, source_uri: str) -> str:
    """Return where a record is from: its URI, behind its data set where there are several."""
    return f"{data_set}: {source_uri}" if data_set else source_uri


def probabilities_of(rows: pa.Table) -> npt.NDArray[np.float32]:
    """Return the probabilities of rows: float32 [n, C]."""
    return numbers_of(rows["probabilities"])


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise CorruptDataError(
            f"the predictions {path} cannot be read: {error}",
            "run `shardmill evaluate RUN` to write them again",
        ) from error
