"""The indexes of a split as one table of numpy arrays: 36 bytes a record.

Indexes are checked against the manifest before they are believed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.infra.arguments import checked
from shardmill.infra.dataset.joined import JoinedVersion
from shardmill.infra.dataset.version import DatasetVersion, read_parquet
from shardmill.infra.digests import sha256_hex
from shardmill.infra.errors import CorruptDataError, NotFoundError, UsageError
from shardmill.infra.format.contract import Shard
from shardmill.infra.format.known_features import LABELS, TARGETS, LabelKind, MaskFormat
from shardmill.training.arrays import Ints
from shardmill.training.order.from_settings import LabelsOnly
from shardmill.training.reading.records.columns import FeatureColumns, SetLabels, Targets, chosen_features
from shardmill.training.reading.records.record_ids import RecordIds, id_numbers, id_text

_MOST_RECORDS = 512


def first_ordinals(table: SplitTable) -> Ints:
    """Return the first ordinal of each shard, and the end of the last: int64 [shards + 1]."""
    return np.searchsorted(table.shard, np.arange(len(table.paths) + 1)).astype(np.int64)


def record_runs(table: SplitTable, run_bytes: int) -> Ints:
    """Divide each shard into runs of about ``run_bytes``.

    Returns:
        int64 [runs + 1]: the first ordinal of each run, and behind the last.
    """
    row = np.arange(len(table)) - first_ordinals(table)[table.shard]
    key = np.stack([table.shard.astype(np.int64), table.offset_bytes // run_bytes, row // _MOST_RECORDS])
    begins = np.flatnonzero(np.any(np.diff(key, axis=1, prepend=-1), axis=0)).astype(np.int64)
    return np.append(begins, len(table))


T = TypeVar("T")

_COLUMNS: Final[Mapping[str, type[np.integer[Any]]]] = {
    "id": np.uint64,
    "offset_bytes": np.int64,
    "length_bytes": np.int32,
    "label": np.int32,
    "height": np.int32,
    "width": np.int32,
}
_LABEL_COLUMNS: Final[Mapping[LabelKind, tuple[str, ...]]] = {"multi": (LABELS,), "targets": (TARGETS,)}
_REMOTE_READS = 32  # at a time: they wait for the store, and an index is small


@dataclass(frozen=True, slots=True)
class SplitTable:
    """The place, label and size of each record of a split, by ordinal.

    Attributes:
        split: its name.
        paths: paths of the shards, relative to the dataset's folder.
        shard: int32 [N], index into ``paths``.
        offset_bytes: int64 [N], of the stored record in its shard.
        length_bytes: int32 [N], of the stored record.
        label: int32 [N]; -1 unless the records have one class each.
        height, width: int32 [N], of the stored image (pixels).
        id: uint64 [N], the number of each id (``record_ids``).
        labels: several labels or numbers of each record; None if it has one class or nothing.
        mask: the stored form of the masks, which are the labels then; None if the records have none.
        set_sizes: the number of records of each of several data sets, which follow each other; empty for one.
    """

    split: str
    paths: tuple[str, ...]
    shard: npt.NDArray[np.int32]
    offset_bytes: npt.NDArray[np.int64]
    length_bytes: npt.NDArray[np.int32]
    label: npt.NDArray[np.int32]
    height: npt.NDArray[np.int32]
    width: npt.NDArray[np.int32]
    id: RecordIds
    labels: SetLabels | Targets | None = None
    mask: MaskFormat | None = None
    set_sizes: tuple[int, ...] = ()

    @property
    def data_sets(self) -> list[LabelsOnly]:
        """The labels of each of several data sets; empty: there is one."""
        stops = np.cumsum(self.set_sizes, dtype=np.int64).tolist()
        parts = [slice(stop - size, stop) for stop, size in zip(stops, self.set_sizes, strict=True)]
        sets = self.label_sets
        return [LabelsOnly(self.label[part], None if sets is None else sets.part(part)) for part in parts]

    @checked
    def data_set_of(self, ordinals: Ints) -> Ints:
        """Return the number of the data set of each record: int64 [M]."""
        return np.searchsorted(np.cumsum(self.set_sizes or (len(self),)), ordinals, side="right")

    @property
    def label_shape(self) -> tuple[int, ...]:
        """The shape of the labels of a record: () for a class, (C,) for several labels, (T,) for numbers."""
        return () if self.labels is None else (self.labels.width,)

    @property
    def label_sets(self) -> SetLabels | None:
        """Several labels of each record; None if the records have other labels."""
        return self.labels if isinstance(self.labels, SetLabels) else None

    @checked
    def labels_of(self, ordinals: Ints) -> npt.NDArray[np.int32] | npt.NDArray[np.float32]:
        """Return the labels of records.

        Returns:
            int32 [M], a class each (-1 if the records have no labels); float32 [M, C], 1 for each label that
            a record has; or float32 [M, T], numbers.
        """
        return self.label[ordinals] if self.labels is None else self.labels.rows(ordinals)

    def __len__(self) -> int:
        return int(self.shard.size)

    @property
    def shard_sizes(self) -> npt.NDArray[np.int64]:
        """The number of records of each shard: int64 [len(paths)]."""
        return np.bincount(self.shard, minlength=len(self.paths)).astype(np.int64)

    def place(self, ordinal: int) -> tuple[str, int, int]:
        """Return the place of a record: (path of its shard, offset, length in bytes).

        Raises:
            UsageError: there is no such record.
        """
        if not (isinstance(ordinal, int | np.integer) and 0 <= ordinal < self.shard.size):
            raise UsageError(
                f"ordinal = {ordinal!r} of the split {self.split!r}",
                f"give the number of one of its {self.shard.size:,} records, from 0 on",
            )
        path = self.paths[self.shard[ordinal]]
        return path, int(self.offset_bytes[ordinal]), int(self.length_bytes[ordinal])

    def id_of(self, ordinal: int) -> str:
        """Return the id of a record: 16 hexadecimal digits."""
        return id_text(self.id[ordinal])

    @checked
    def ids(self, ordinals: npt.NDArray[np.int64]) -> list[str]:
        """Return the ids of the records ``ordinals`` (int64 [M])."""
        return list(map(id_text, self.id[ordinals].tolist()))


def load_table(version: DatasetVersion, split: str) -> SplitTable:
    """Load the table of a split; empty if the version has no such split. A view has only its own records.

    Raises:
        CorruptDataError: a shard or an index is missing, truncated, or differs from the manifest.
    """
    shards = version.shards(split)
    of_labels = _LABEL_COLUMNS.get(version.manifest.label_kind, ())
    most = sum(shard.num_examples for shard in shards)
    columns = {name: np.empty(most, kind) for name, kind in _COLUMNS.items()}
    sizes, labels = [], []
    stop = 0
    for index in _read_indexes(version, shards, [*_COLUMNS, *of_labels]):
        start, stop = stop, stop + index.num_rows
        for name, column in columns.items():
            values = index.column(name)
            column[start:stop] = id_numbers(values) if name == "id" else values.to_numpy()
        sizes.append(index.num_rows)
        labels.append(index.select(of_labels))
    if stop < most:  # a view
        columns = {name: column[:stop].copy() for name, column in columns.items()}
    set_sizes = _set_sizes(version, shards, sizes)
    return SplitTable(
        split=split,
        paths=tuple(shard.path for shard in shards),
        shard=np.repeat(np.arange(len(shards), dtype=np.int32), sizes),
        labels=_labels(version, pa.concat_tables(labels), set_sizes) if labels else None,
        mask=version.manifest.mask,
        set_sizes=set_sizes,
        **columns,
    )


def _set_sizes(version: DatasetVersion, shards: Sequence[Shard], sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the number of records of each data set of a joined version, from those of its shards."""
    if not isinstance(version, JoinedVersion):
        return ()
    found = [0] * len(version.data_sets)
    for shard, size in zip(shards, sizes, strict=True):
        found[version.shard_of(shard)[0]] += size
    return tuple(found)


def load_features(version: DatasetVersion, split: str, names: Sequence[str]) -> FeatureColumns:
    """Load features of the records of a split, in the order of its table.

    Raises:
        UsageError: the version has no such feature.
        CorruptDataError: a shard or an index is missing, truncated, or differs from the manifest.
    """
    features = chosen_features(version, names)
    if not features:
        return FeatureColumns()
    columns = [feature.name for feature in features]
    indexes = list(_read_indexes(version, version.shards(split), columns))
    if not indexes:
        return FeatureColumns()
    return FeatureColumns.of(features, pa.concat_tables(indexes))


def _labels(
    version: DatasetVersion, rows: pa.Table, set_sizes: tuple[int, ...]
) -> SetLabels | Targets | None:
    manifest = version.manifest
    if manifest.label_kind == "multi":
        found = SetLabels.of(rows[LABELS], len(manifest.classes))
        known = np.array([version.knows_classes(number) for number in range(len(set_sizes))], bool)
        return found if known.all() else replace(found, known=known, stops=np.cumsum(set_sizes))
    if manifest.label_kind == "targets":
        (targets,) = (feature for feature in manifest.extra_features if feature.name == TARGETS)
        return Targets.of(rows[TARGETS], targets.length or 1)
    return None


def _read_indexes(
    version: DatasetVersion, shards: Sequence[Shard], columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Read the indexes of shards, many at a time from an object store, and check the sizes of the shards."""
    read, check = partial(_read_index, version, columns=columns), partial(_check_size, version)
    if version.storage.is_local:
        for shard in shards:
            check(shard)
            yield read(shard)
        return
    with ThreadPoolExecutor(_REMOTE_READS, "indexes") as threads:
        checks = _mapped(threads, check, shards)
        for _, index in zip(checks, _mapped(threads, read, shards), strict=True):
            yield index


def _mapped(
    threads: ThreadPoolExecutor, function: Callable[[Shard], T], shards: Sequence[Shard]
) -> Iterator[T]:
    """Call the function for each shard in ``threads``, a limited number ahead of the result that is taken."""
    calls: deque[Future[T]] = deque()
    for shard in shards:
        calls.append(threads.submit(function, shard))
        if len(calls) > _REMOTE_READS:
            yield calls.popleft().result()
    while calls:
        yield calls.popleft().result()


def _check_size(version: DatasetVersion, shard: Shard) -> None:
    with _complete(version, shard):
        num_bytes = version.storage.size(shard.path)
    if num_bytes != shard.num_bytes:
        raise CorruptDataError(
            f"{shard.path} has {num_bytes} bytes, the manifest of {version.ref} says {shard.num_bytes}",
            _remedy(version, shard),
        )


def _read_index(version: DatasetVersion, shard: Shard, columns: Sequence[str]) -> pa.Table:
    with _complete(version, shard):
        data = version.storage.read_bytes(shard.index_path)
    if len(data) != shard.index_bytes or sha256_hex(data) != shard.index_sha256:
        raise CorruptDataError(
            f"{shard.index_path} differs from the index in the manifest of {version.ref}",
            _remedy(version, shard),
        )
    of_view = version.view_columns(shard)
    rows = read_parquet(data, columns=list(dict.fromkeys((*columns, *of_view))))
    if rows.num_rows != shard.num_examples:
        raise CorruptDataError(
            f"{shard.index_path} has {rows.num_rows} rows, the manifest says {shard.num_examples}",
            _remedy(version, shard),
        )
    return version.select(shard, rows).select(columns)


@contextmanager
def _complete(version: DatasetVersion, shard: Shard) -> Iterator[None]:
    """Say that the version is incomplete where a file of it is missing."""
    try:
        yield
    except NotFoundError as error:
        raise CorruptDataError(
            f"{version.ref} is incomplete: {error.message}", _remedy(version, shard)
        ) from error


def _remedy(version: DatasetVersion, shard: Shard) -> str:
    whole = version.data_set_of(shard)
    return (
        f"run `shardmill verify {whole.name}@{whole.version}`; restore the damaged files from a copy, or "
        "prepare the dataset again"
    )
