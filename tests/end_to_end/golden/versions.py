"""Describes a version of a dataset as a JSON document. Reads files by the documented format alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Document = dict[str, Any]

# The keys of the manifest that describe the data. The other keys are texts, times, paths and digests.
_MANIFEST_KEYS = (
    "format_version", "version", "parent", "restores", "classes", "container", "image_encoding", "accounting",
    "splits", "quarantine", "label_conflicts", "cross_split_duplicates", "leaks", "statistics",
)  # fmt: skip
_ROWS_ONLY_KEYS = ("version", "classes", "container", "accounting", "quarantine")

# They depend on the other records of the shard.
_PLACE_COLUMNS = ("offset_bytes", "length_bytes")


def describe(dataset: Path, manifest: Mapping[str, Any], *, made_source: bool, rows_only: bool) -> Document:
    """Describe a version.

    Args:
        dataset: the dataset's folder.
        manifest: the version's manifest.
        made_source: whether the test wrote the source. Photographs have other modification times on each
            machine and there are thousands of them, so their description has neither these times nor a row
            for each file.
        rows_only: describe the outcome of each input, and all shards and tables in three digests.
    """
    indexes = [pq.read_table(dataset / shard["index_path"]) for shard in manifest["shards"]]
    inputs = pa.concat_tables(pq.read_table(dataset / part["path"]) for part in manifest["inputs"])
    if rows_only:
        found = {key: manifest[key] for key in _ROWS_ONLY_KEYS}
        shards = [_shard(dataset, shard) for shard in manifest["shards"]]
        found["shards_digest"] = _digest([(shard["name"], shard["sha256"]) for shard in shards])
        found["indexes_digest"] = _digest([(shard["index_name"], shard["index_sha256"]) for shard in shards])
        found["inputs_digest"] = _digest(_column_digests(inputs.drop_columns("mtime_ns")))
        return found | {"inputs": _rows(dataset, manifest, inputs, indexes)}
    found = {key: manifest[key] for key in _MANIFEST_KEYS}
    found["shards"] = [_shard(dataset, shard) for shard in manifest["shards"]]
    found["index_columns"] = _column_digests(pa.concat_tables(indexes)) if indexes else {}
    if near := manifest["near_duplicates"]:
        found["near_duplicates"] = _file(dataset, near)
        found["near_duplicates_columns"] = _column_digests(pq.read_table(dataset / near["path"]))
    if made_source:
        found["input_parts"] = [_file(dataset, part) for part in manifest["inputs"]]
        found["input_columns"] = _column_digests(inputs)
        found["inputs"] = _rows(dataset, manifest, inputs, indexes)
    else:
        found["input_columns"] = _column_digests(inputs.drop_columns("mtime_ns"))
    return found


def _shard(dataset: Path, entry: Mapping[str, Any]) -> Document:
    """Check the files of a shard against the manifest and return its entry without folders."""
    _check(dataset / entry["path"], entry["num_bytes"], entry["sha256"])
    _check(dataset / entry["index_path"], entry["index_bytes"], entry["index_sha256"])
    names = {"name": Path(entry["path"]).name, "index_name": Path(entry["index_path"]).name}
    return names | {key: value for key, value in entry.items() if key not in ("path", "index_path")}


def _file(dataset: Path, entry: Mapping[str, Any]) -> Document:
    """Check a table file against the manifest and return its entry without the path."""
    _check(dataset / entry["path"], entry["num_bytes"], entry["sha256"])
    return {key: value for key, value in entry.items() if key != "path"}


def _check(path: Path, num_bytes: int, sha256: str) -> None:
    data = path.read_bytes()
    found = len(data), hashlib.sha256(data).hexdigest()
    if found != (num_bytes, sha256):
        raise AssertionError(f"{path} has {found}, and the manifest says {(num_bytes, sha256)}")


def _column_digests(table: pa.Table) -> Document:
    """Map the name and type of each column, in order, to a digest of its values."""
    return {f"{field.name}: {field.type}": _digest(table[field.name].to_pylist()) for field in table.schema}


def _digest(values: object) -> str:
    return _short(json.dumps(values, default=bytes.hex).encode())


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _rows(
    dataset: Path, manifest: Mapping[str, Any], inputs: pa.Table, indexes: Iterable[pa.Table]
) -> dict[str, str]:
    """Map the URI of each input to its outcome.

    The outcome of a record ends with two digests: of its stored bytes and of its row in the index.
    """
    stored = {}
    for shard, index in zip(manifest["shards"], indexes, strict=True):
        data = (dataset / shard["path"]).read_bytes()
        for row in index.to_pylist():
            offset, length = (row.pop(column) for column in _PLACE_COLUMNS)
            stored[row["id"]] = f"bytes {_short(data[offset : offset + length])} facts {_digest(row)}"
    return {row["uri"]: _outcome(row, stored) for row in inputs.to_pylist()}


def _outcome(row: Mapping[str, Any], stored: Mapping[str, str]) -> str:
    words = [row[name] for name in ("outcome", "stage", "reason", "record_id") if row[name] is not None]
    return " ".join([*words, stored[row["record_id"]]] if row["outcome"] == "record" else words)
