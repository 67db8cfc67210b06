"""Sources whose images are rows of files, made on the spot, listed and read as a job does."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import MEMBER_LISTING_SCHEMA, file_refs
from shardmill.beam_jobs.sources import list_inputs, make_readable, open_reader
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.tables.features import features_of, with_features
from shardmill.infra.storage.filesystem import Storage
from tests.samples.sources.columns import with_columns

IMAGE_STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def hugging_face_table(
    images: Sequence[bytes | None], labels: Sequence[int], names: Sequence[str]
) -> pa.Table:
    """Images and labels as ``datasets.Dataset.to_parquet`` lays them out, with its metadata."""
    cells = [{"bytes": image, "path": None} for image in images]
    table = pa.table({"image": pa.array(cells, IMAGE_STRUCT), "label": pa.array(labels, pa.int64())})
    features = {
        "image": {"_type": "Image"},
        "label": {"names": list(names), "_type": "ClassLabel"},
    }
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def write_parquet(path: Path, table: pa.Table, row_group_size: int = 4) -> None:
    """Write a table with small row groups."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=row_group_size)


def idx_bytes(values: npt.NDArray[np.uint8]) -> bytes:
    """An array in the format of MNIST's files."""
    header = struct.pack(">HBB", 0, 8, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.tobytes()


def config_of(kind: str, **rows: Any) -> PrepareConfig:
    """A kind with these settings of ``columns`` and ``rows``, and ``files`` and ``labels`` of ``source``."""
    own = {name: rows.pop(name, None) for name in ("files", "labels")}
    return PrepareConfig.model_validate({"source": {"kind": kind, **own, **with_columns("rows", rows)}})


def listed(source: str | Path, kind: str, **rows: Any) -> Listing:
    """The listing of a source."""
    config = config_of(kind, **rows)
    listing = list_inputs(SourceFolder(str(source), only=config.source.files), config)
    assert listing.table.schema == with_features(MEMBER_LISTING_SCHEMA, features_of(listing.table))
    uris = listing.table["uri"].to_pylist()
    assert uris == sorted(set(uris)), "sorted and unique"
    return listing


def outcomes(listing: Listing) -> dict[str, tuple[Any, ...]]:
    """URI -> (label, split, reason)."""
    table = listing.table
    columns = (table[name].to_pylist() for name in ("label", "split", "reason"))
    return dict(zip(table["uri"].to_pylist(), zip(*columns, strict=True), strict=True))


def images_of(
    source: str | Path, kind: str, scratch: Path | None = None, **rows: Any
) -> Mapping[str, bytes | tuple[str, str]]:
    """URI -> image, or (reason, message), of all rows that are to be read; by a reader that was pickled.

    Args:
        source: the folder.
        kind: of the source.
        scratch: the run's folder, with what the kind prepares there; None for no run.
        **rows: settings.
    """
    folder, config = SourceFolder(str(source)), config_of(kind, **rows)
    references = list_inputs(folder, config).to_read()
    storage = Storage.at(scratch) if scratch is not None else None
    if storage is not None:
        make_readable(folder, config, references, storage)
    reader = pickle.loads(pickle.dumps(open_reader(folder, config, storage)))
    found: dict[str, bytes | tuple[str, str]] = {}
    for file in file_refs(references):
        try:
            found[file.uri] = reader.read(file)
        except SourceFault as fault:
            found[file.uri] = (fault.reason, fault.message)
    return found


def example(**features: Sequence[bytes] | Sequence[int] | Sequence[float]) -> bytes:
    """A ``tf.train.Example`` with these features, written by hand after its specification."""
    entries = b""
    for name, values in features.items():
        if all(isinstance(value, bytes) for value in values):
            stored = _field(1, b"".join(_field(1, value) for value in values if isinstance(value, bytes)))
        elif any(isinstance(value, float) for value in values):
            stored = _field(2, _field(1, struct.pack(f"<{len(values)}f", *values)))
        else:
            stored = _field(
                3, _field(1, b"".join(_varint(value) for value in values if isinstance(value, int)))
            )
        entries += _field(1, _field(1, name.encode()) + _field(2, stored))
    return _field(1, entries)


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
