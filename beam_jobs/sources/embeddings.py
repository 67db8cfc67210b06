"""Read the vectors of images that ``groups.embeddings.file`` names.

A Parquet file has a column ``id`` (record ids) or ``uri`` (of files, relative to the source), and a column
``embedding`` with a list of numbers of one length. An npz file has arrays of the same names.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as types

from shardmill.beam_jobs.config import EmbeddingsConfig
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.table.tables import Table, find_files_named
from shardmill.beam_jobs.tables.columns import without_broken_texts
from shardmill.beam_jobs.tables.vectors import MAX_DIMENSIONS, Float32, Vectors
from shardmill.infra.codecs.numpy_files import ARRAY_DAMAGES
from shardmill.infra.errors import DataError

Key = Literal["id", "uri"]
_KEYS: Final[tuple[Key, ...]] = ("id", "uri")
_VECTORS = "embedding"
_READ_BYTES = 1 << 22


@dataclass(frozen=True)
class EmbeddingFiles:
    """The files with the vectors.

    Attributes:
        files: sorted by path.
        digest: digest of their content.
    """

    files: Sequence[Table]
    digest: str

    @classmethod
    def of(cls, source: SourceFolder, config: EmbeddingsConfig) -> EmbeddingFiles | None:
        """Find and hash the files; None if the configuration names none.

        Raises:
            NotFoundError: there is none. ConfigError: the path is wrong.
        """
        if config.file is None:
            return None
        files = find_files_named(source, config.file, "groups.embeddings.file")
        digest = hashlib.sha256()
        for file in files:
            digest.update(_content_digest(file))
        return cls(files, digest.hexdigest())

    def read(self) -> Vectors:
        """Read the vectors of all files.

        Raises:
            DataError: names the file, and the first row that cannot be used.
        """
        parts = [_read(file) for file in self.files]
        first = parts[0]
        for file, part in zip(self.files, parts, strict=True):
            if part.key != first.key or part.values.shape[1] != first.values.shape[1]:
                raise DataError(
                    f"{file.name} has vectors of {part.values.shape[1]} numbers by {part.key}, and "
                    f"{self.files[0].name} of {first.values.shape[1]} by {first.key}",
                    "compute all vectors with one model, and name the images in one way",
                )
        keys = pa.concat_arrays([part.keys for part in parts])
        values = first.values if len(parts) == 1 else np.concatenate([part.values for part in parts])
        _check_unique(keys, first.key)
        return Vectors(first.key, keys, values)


def files_within(source: SourceFolder, config: EmbeddingsConfig) -> list[str]:
    """Return the URIs of the files with vectors that lie in the source: they are no inputs.

    Raises:
        NotFoundError: there is none. ConfigError: the path is wrong.
    """
    if config.file is None:
        return []
    found = find_files_named(source, config.file, "groups.embeddings.file")
    return [file.uri for file in found if file.uri is not None]


def _content_digest(file: Table) -> bytes:
    digest = hashlib.sha256()
    with file.folder.open_input(file.path) as stream:
        while data := stream.read(_READ_BYTES):
            digest.update(data)
    return digest.digest()


def _read(file: Table) -> Vectors:
    found = _read_npz(file) if file.path.lower().endswith(".npz") else _read_parquet(file)
    bad = np.flatnonzero(~np.isfinite(found.values).all(axis=1) | ~found.values.any(axis=1))
    if len(bad):
        values = found.values[bad[0]]
        fault = "only zeros" if np.isfinite(values).all() else "a number that is not finite"
        raise DataError(
            f"{file.name}: the vector of {found.keys[bad[0]].as_py()!r} has {fault}"
            + (f", and so have {len(bad) - 1:,} others" if len(bad) > 1 else ""),
            "leave out the rows of images that have no vector",
        )
    return found


def _read_parquet(file: Table) -> Vectors:
    try:
        with file.folder.open_input(file.path) as stream:
            names = pq.read_schema(stream).names
        key = _key_in(names, file)
        with file.folder.open_input(file.path) as stream:
            table, faults = without_broken_texts(pq.read_table(stream, columns=[key, _VECTORS]))
    except (pa.ArrowException, UnicodeError) as error:
        raise DataError(
            f"{file.name} cannot be read as Parquet: {error}", "give a Parquet or npz file of vectors"
        ) from error
    if faults.null_count < len(faults):
        raise DataError(f"{file.name}: a {key} is not UTF-8", "write the keys as UTF-8")
    keys, lists = table[key].combine_chunks(), table[_VECTORS].combine_chunks()
    kind = lists.type
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not is_list or not (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)):
        raise DataError(f"{file.name}: the column {_VECTORS} holds {kind}", "it must hold lists of numbers")
    if not (types.is_string(keys.type) or types.is_large_string(keys.type)):
        raise DataError(f"{file.name}: the column {key} holds {keys.type}", "it must hold texts")
    if keys.null_count or lists.null_count or lists.flatten().null_count:
        raise DataError(
            f"{file.name}: a row lacks its {key}, its vector or a number of it",
            "leave out the rows of images that have no vector",
        )
    lengths = np.asarray(pc.list_value_length(lists).to_numpy(), np.int64)
    size = _one_length(lengths, keys, file)
    values = _as_float32(lists.flatten().to_numpy(zero_copy_only=False))
    return Vectors(key, keys.cast(pa.string()), values.reshape(-1, size))


def _read_npz(file: Table) -> Vectors:
    with file.folder.open_input(file.path) as stream:
        data = stream.read()
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            key = _key_in(list(arrays.files), file)
            keys, values = arrays[key], arrays[_VECTORS]
    except (MemoryError, *ARRAY_DAMAGES) as error:
        raise DataError(f"{file.name} cannot be read as npz: {error}", "write it with numpy.savez") from error
    if values.ndim != 2 or values.dtype.kind not in "fiu" or keys.ndim != 1 or keys.dtype.kind not in "US":
        raise DataError(
            f"{file.name}: {key} is {keys.dtype} {list(keys.shape)}, "
            f"{_VECTORS} is {values.dtype} {list(values.shape)}",
            f"{key} must be texts [N], and {_VECTORS} numbers [N, D]",
        )
    if len(keys) != len(values):
        raise DataError(f"{file.name}: {len(keys):,} keys and {len(values):,} vectors", "give a key for each")
    try:
        texts = pa.array([_text(one) for one in keys.tolist()], pa.string())
    except UnicodeError as error:
        raise DataError(f"{file.name}: a {key} is not UTF-8: {error}", "write the keys as UTF-8") from error
    _one_length(np.full(len(values), values.shape[1]), texts, file)
    return Vectors(key, texts, _as_float32(values))


def _text(key: str | bytes) -> str:
    return key.decode("utf-8") if isinstance(key, bytes) else key


def _as_float32(values: npt.NDArray[np.generic]) -> Float32:
    with np.errstate(over="ignore"):  # too large numbers become infinite, which is reported
        return np.ascontiguousarray(values, np.float32)


def _key_in(names: Sequence[str], file: Table) -> Key:
    """Return the name of the keys.

    Raises:
        DataError: there are no keys or no vectors.
    """
    found = [key for key in _KEYS if key in names]
    if not found or _VECTORS not in names:
        raise DataError(
            f"{file.name} has {', '.join(map(repr, names)) or 'nothing'}",
            f"it needs {_VECTORS!r} with the vectors, and 'id' with record ids or 'uri' with URIs of files",
        )
    return found[0]


def _one_length(lengths: npt.NDArray[np.int64], keys: pa.Array, file: Table) -> int:
    """Return the length of all vectors.

    Raises:
        DataError: there is none, they differ, or they are too long.
    """
    if not len(lengths):
        raise DataError(f"{file.name} has no vectors", "leave groups.embeddings.file out")
    size = int(lengths[0])
    other = np.flatnonzero(lengths != size)
    if len(other):
        raise DataError(
            f"{file.name}: the vector of {keys[int(other[0])].as_py()!r} has {lengths[other[0]]} numbers, "
            f"the first has {size}",
            "all vectors must come from one model",
        )
    if not 2 <= size <= MAX_DIMENSIONS:
        raise DataError(f"{file.name}: vectors of {size} numbers", f"2 to {MAX_DIMENSIONS:,} are possible")
    return size


def _check_unique(keys: pa.Array, key: Key) -> None:
    counts = pc.value_counts(keys)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        raise DataError(
            f"groups.embeddings.file gives the {key} {repeated[0]['values'].as_py()!r} "
            f"{repeated[0]['counts'].as_py()} vectors",
            "give one vector for each",
        )
