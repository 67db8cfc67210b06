"""The indexes of a split as one table of numpy arrays (about 50 bytes a record).

Indexes are checked against the manifest before they are believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infra.dataset.version import DatasetVersion
from infra.digests import sha256_hex
from infra.errors import CorruptDataError, NotFoundError
from infra.format.contract import Manifest, Shard
from infra.format.labels import LABELS, TARGETS, LabelKind
from infra.format.masks import MaskFormat
from infra.format.parquet import read_parquet
from training.arrays import Ints
from training.reading.records.columns import FeatureColumns, SetLabels, Targets, chosen_features

_COLUMNS = ("id", "offset_bytes", "length_bytes", "label", "height", "width")
_LABEL_COLUMNS: Final[Mapping[LabelKind, tuple[str, ...]]] = {"multi": (LABELS,), "targets": (TARGETS,)}
_ID_BYTES = 16
_REMOTE_READS = 32  # at a time: they wait for the store, and an index is small


@dataclass(frozen=True, slots=True)
class SplitTable:
    """The place, label and size of each record of a split, by ordinal.

    Attributes:
        split: its name.
        paths: of the shards, relative to the dataset's folder.
        shard: int32 [N], index into ``paths``.
        offset_bytes, length_bytes: int64 [N], of the stored record.
        label: int32 [N]; -1 unless the records have one class each.
        height, width: int32 [N], of the stored image (pixels).
        id: bytes [N], 16 hexadecimal digits each.
        labels: several labels or numbers of each record; None if it has one class or nothing.
        mask: the stored form of the masks, which are the labels then; None if the records have none.
    """

    split: str
    paths: tuple[str, ...]
    shard: npt.NDArray[np.int32]
    offset_bytes: npt.NDArray[np.int64]
    length_bytes: npt.NDArray[np.int64]
    label: npt.NDArray[np.int32]
    height: npt.NDArray[np.int32]
    width: npt.NDArray[np.int32]
    id: npt.NDArray[np.bytes_]
    labels: SetLabels | Targets | None = None
    mask: MaskFormat | None = None

    @property
    def label_shape(self) -> tuple[int, ...]:
        """The shape of the labels of a record: () for a class, (C,) for several labels, (T,) for numbers."""
        return () if self.labels is None else (self.labels.width,)

    @property
    def label_sets(self) -> SetLabels | None:
        """Several labels of each record; None if the records have other labels."""
        return self.labels if isinstance(self.labels, SetLabels) else None

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
        """Return the place of a record: (path of its shard, offset, length in bytes)."""
        path = self.paths[self.shard[ordinal]]
        return path, int(self.offset_bytes[ordinal]), int(self.length_bytes[ordinal])

    def ids(self, ordinals: npt.NDArray[np.int64]) -> list[str]:
        """Return the ids of the records ``ordinals`` (int64 [M])."""
        return [name.decode("ascii") for name in self.id[ordinals].tolist()]


def load_table(version: DatasetVersion, split: str) -> SplitTable:
    """Load the table of a split; empty if the version has no such split. A view has only its own records.

    Raises:
        CorruptDataError: a shard or an index is missing, truncated, or differs from the manifest.
    """
    shards = version.shards(split)
    wanted = [*_COLUMNS, *_LABEL_COLUMNS.get(version.manifest.label_kind, ())]
    indexes = _read_indexes(version, shards, wanted)
    sizes = [index.num_rows for index in indexes]
    rows = pa.concat_tables(indexes) if indexes else _empty_index()
    return SplitTable(
        split=split,
        paths=tuple(shard.path for shard in shards),
        shard=np.repeat(np.arange(len(shards), dtype=np.int32), sizes),
        offset_bytes=_column(rows, "offset_bytes", np.int64),
        length_bytes=_column(rows, "length_bytes", np.int64),
        label=_column(rows, "label", np.int32),
        height=_column(rows, "height", np.int32),
        width=_column(rows, "width", np.int32),
        id=np.array(rows.column("id").to_pylist(), dtype=f"S{_ID_BYTES}"),
        labels=_labels(version.manifest, rows) if indexes else None,
        mask=version.manifest.mask,
    )


def load_features(version: DatasetVersion, split: str, names: Sequence[str]) -> FeatureColumns:
    """Load features of the records of a split, in the order of its table.

    Raises:
        UsageError: the version has no such feature.
        CorruptDataError: a shard or an index is missing, truncated, or differs from the manifest.
    """
    features = chosen_features(version.manifest.extra_features, names, version.ref)
    if not features:
        return FeatureColumns()
    columns = [feature.name for feature in features]
    indexes = _read_indexes(version, version.shards(split), columns)
    if not indexes:
        return FeatureColumns()
    return FeatureColumns.of(features, pa.concat_tables(indexes))


def _labels(manifest: Manifest, rows: pa.Table) -> SetLabels | Targets | None:
    if manifest.label_kind == "multi":
        return SetLabels.of(rows[LABELS], len(manifest.classes))
    if manifest.label_kind == "targets":
        (targets,) = (feature for feature in manifest.extra_features if feature.name == TARGETS)
        return Targets.of(rows[TARGETS], targets.length or 1)
    return None


def _read_indexes(version: DatasetVersion, shards: Sequence[Shard], columns: Sequence[str]) -> list[pa.Table]:
    """Read the indexes of shards; many at a time from an object store, where each takes three requests."""
    read = partial(_read_index, version, columns=columns)
    if version.storage.is_local:
        return [read(shard) for shard in shards]
    with ThreadPoolExecutor(_REMOTE_READS, "indexes") as threads:
        return list(threads.map(read, shards))


def _read_index(version: DatasetVersion, shard: Shard, columns: Sequence[str]) -> pa.Table:
    remedy = (
        f"run `shardmill verify {version.ref}`; restore the damaged files from a copy, or prepare the "
        "dataset again"
    )
    try:
        data = version.storage.read_bytes(shard.index_path)
        shard_bytes = version.storage.size(shard.path)
    except NotFoundError as error:
        raise CorruptDataError(f"{version.ref} is incomplete: {error.message}", remedy) from error
    if shard_bytes != shard.num_bytes:
        raise CorruptDataError(
            f"{shard.path} has {shard_bytes} bytes, the manifest of {version.ref} says {shard.num_bytes}",
            remedy,
        )
    if len(data) != shard.index_bytes or sha256_hex(data) != shard.index_sha256:
        raise CorruptDataError(
            f"{shard.index_path} differs from the index in the manifest of {version.ref}", remedy
        )
    of_view = version.view.fields.names if version.view else []
    rows = read_parquet(data, columns=list(dict.fromkeys((*columns, *of_view))))
    if rows.num_rows != shard.num_examples:
        raise CorruptDataError(
            f"{shard.index_path} has {rows.num_rows} rows, the manifest says {shard.num_examples}", remedy
        )
    return version.select(shard, rows).select(columns)


def _empty_index() -> pa.Table:
    kinds = {"id": pa.string(), "offset_bytes": pa.int64(), "length_bytes": pa.int64()}
    return pa.table({name: pa.array([], kinds.get(name, pa.int32())) for name in _COLUMNS})


def _column(rows: pa.Table, name: str, kind: type[np.integer[Any]]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(rows.column(name).to_numpy().astype(kind, copy=False))
