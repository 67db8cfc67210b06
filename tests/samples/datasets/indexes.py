"""Versions that have indexes and rows of inputs, but no shards: many images for little."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.contract import (
    INDEX_SCHEMA,
    INPUTS_SCHEMA,
    Accounting,
    Manifest,
    Shard,
    TableFile,
    class_counts_of,
    summarise_splits,
)
from shardmill.infra.storage.filesystem import Storage


@dataclass(frozen=True, slots=True)
class Image:
    """One image of a version, or an input that was left out.

    Attributes:
        name: decides the id.
        label: name of its class.
        split: of the record.
        facts: further columns of the index.
        outcome: of the input.
    """

    name: str
    label: str = "a"
    split: str = "train"
    facts: dict[str, Any] = field(default_factory=dict)
    outcome: str = "record"

    @property
    def sha256(self) -> str:
        """The number of bytes that the image would have."""
        return hashlib.sha256(self.name.encode()).hexdigest()


def indexed_version(
    root: Path,
    number: int,
    shards: dict[str, Sequence[Image]],
    others: Sequence[Image] = (),
    **manifest: Any,
) -> DatasetVersion:
    """A version whose shards have these images, by name; equal names in two versions are one shard."""
    classes = sorted({image.label for images in shards.values() for image in images})
    (root / "data").mkdir(parents=True, exist_ok=True)
    fields = [feature.arrow_field() for feature in manifest.get("extra_features", [])]
    schema = pa.schema([*INDEX_SCHEMA, *fields])
    written = [_shard(root, name, images, classes, schema) for name, images in shards.items()]
    images = [image for part in (*shards.values(), others) for image in part]
    inputs = _inputs(root, number, images)
    outcomes = Counter(image.outcome for image in images)
    accounting = Accounting(
        num_inputs=len(images),
        num_records=outcomes["record"],
        num_duplicates=outcomes["duplicate"],
        num_filtered=outcomes["filtered"],
        num_quarantined=outcomes["quarantined"],
    )
    stored = Manifest.model_validate(
        {
            "dataset": "d",
            "version": number,
            "parent": number - 1 or None,
            "created_at": "2026-01-02T03:04:05Z",
            "plan_digest": f"p{number}",
            "run_digest": "f00d",
            "source": "/data/d",
            "source_digest": "cafe",
            "classes": classes,
            "container": "gzip",
            "config": {},
            "codecs": {},
            "shards": written,
            "inputs": [inputs],
            "accounting": accounting,
            "splits": summarise_splits(written),
        }
        | manifest
    )
    return DatasetVersion(Storage.at(root), stored)


def _shard(root: Path, name: str, images: Sequence[Image], classes: list[str], schema: pa.Schema) -> Shard:
    rows = [_row(image, classes) for image in images]
    index = pa.Table.from_pylist(rows, schema)
    pq.write_table(index, root / "data" / f"{name}.parquet")
    return Shard(
        path=f"data/{name}", index_path=f"data/{name}.parquet", split=images[0].split,
        num_examples=len(images), num_bytes=1, payload_bytes=1, sha256="", index_bytes=1, index_sha256="",
        class_counts=class_counts_of(index, classes),
    )  # fmt: skip


def _row(image: Image, classes: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(INDEX_SCHEMA.names)
    label = classes.index(image.label)
    return row | {"id": image.sha256[:16], "sha256": image.sha256, "label": label} | image.facts


def _inputs(root: Path, number: int, images: Sequence[Image]) -> TableFile:
    rows = [
        dict.fromkeys(INPUTS_SCHEMA.names)
        | {"uri": image.name, "sha256": image.sha256, "label": image.label, "outcome": image.outcome}
        for image in images
    ]
    table = pa.Table.from_pylist(sorted(rows, key=lambda row: row["uri"]), INPUTS_SCHEMA)
    path = f"data/inputs-{number}.parquet"
    pq.write_table(table, root / path)
    return TableFile(path=path, num_rows=table.num_rows, num_bytes=1, sha256="")
