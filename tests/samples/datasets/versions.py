"""A small version written by the contract alone (no Beam), for tests of what reads versions."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.infra.codecs import Pixels, encode_jpeg
from shardmill.infra.format.contract import (
    INDEX_SCHEMA,
    INPUTS_SCHEMA,
    Accounting,
    LabelConflict,
    Manifest,
    Shard,
    TableFile,
    summarise_splits,
)
from shardmill.infra.format.examples import ImageRecord, build_example
from shardmill.infra.format.layout import data_dir, index_file, shard_file
from shardmill.infra.format.records import Container, pack_record
from shardmill.infra.storage.filesystem import Storage

SHARE = {"train": 0.8, "validation": 0.1, "test": 0.1}


@dataclass(slots=True)
class Made:
    """A version that is written but for its manifest."""

    storage: Storage
    manifest: Manifest
    inputs: pa.Table


def write_table(storage: Storage, path: str, table: pa.Table) -> TableFile:
    """Write a Parquet file of a version."""
    sink = io.BytesIO()
    pq.write_table(table, sink)
    data = sink.getvalue()
    storage.write_atomic(path, data)
    digest = hashlib.sha256(data).hexdigest()
    return TableFile(path=path, num_rows=table.num_rows, num_bytes=len(data), sha256=digest)


@dataclass(slots=True)
class VersionMaker:
    """Collects what shall be in a version, then writes it.

    Attributes:
        picture: (class number, number of the image) -> uint8 [H, W, 3].
        facts: URI -> further columns of its index row.
    """

    root: Path
    name: str = "sample"
    container: Container = "gzip"
    shards_per_split: int = 2
    picture: Any = None
    source: str = "/data/sample"
    plan: str = "feed"
    version: int = 1
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=lambda: {"image": {"size": 64}, "failure_budget": 0.5})
    _rows: list[dict[str, Any]] = field(default_factory=list)
    _records: list[tuple[str, int, dict[str, Any]]] = field(
        default_factory=list
    )  # (class, number, input row)
    _conflicts: list[LabelConflict] = field(default_factory=list)

    def add_class(self, label: str, count: int) -> None:
        """``count`` records; the first tenth goes to validation, the next to test, the rest to train."""
        for number in range(count):
            row = self._row(f"{label}/{number:05d}.jpg", label, "record")
            row["sha256"] = hashlib.sha256(row["uri"].encode("utf-8", "surrogateescape")).hexdigest()
            row["record_id"] = row["sha256"][:16]
            row["split"] = "validation" if number % 10 == 0 else "test" if number % 10 == 1 else "train"
            self._records.append((label, number, row))

    def add_duplicate(self, uri: str, label: str, of: int = 0) -> None:
        """An input with the bytes of record number ``of``; a conflict where its label differs."""
        kept_label, _, kept = self._records[of]
        row = self._row(uri, label, "duplicate")
        row |= {"record_id": kept["record_id"], "sha256": kept["sha256"], "split": kept["split"]}
        if label != kept_label:
            self._conflicts.append(
                LabelConflict(sha256=kept["sha256"], uris=[kept["uri"], uri], labels=[kept_label, label])
            )

    def add_lost(
        self, uri: str, label: str | None, outcome: str, reason: str, message: str, **columns: Any
    ) -> None:
        """An input that is quarantined or filtered."""
        self._row(uri, label, outcome).update(stage="decode", reason=reason, message=message, **columns)

    def rename(self, uri: str, *, label: str | None = None, split: str | None = None) -> None:
        """Give a record another label or split."""
        for at, (old_label, number, row) in enumerate(self._records):
            if row["uri"] == uri:
                row.update({"label": label or old_label, "split": split or row["split"]})
                self._records[at] = (label or old_label, number, row)

    def remove(self, uri: str) -> None:
        """Leave a record out again."""
        self._records = [record for record in self._records if record[2]["uri"] != uri]
        self._rows = [row for row in self._rows if row["uri"] != uri]

    def write(self) -> Made:
        """Write shards, indexes and inputs; return the manifest that would publish them."""
        storage = Storage.at(self.root / self.name)
        classes = sorted({label for label, _, _ in self._records})
        shards = [shard for split in SHARE for shard in self._write_split(storage, split, classes)]
        inputs = pa.Table.from_pylist(sorted(self._rows, key=lambda row: row["uri"]), INPUTS_SCHEMA)
        outcomes = Counter(row["outcome"] for row in self._rows)
        manifest = Manifest(
            dataset=self.name,
            version=self.version,
            parent=self.version - 1 or None,
            created_at="2026-01-02T03:04:05Z",
            plan_digest=self.plan,
            run_digest="f00d",
            source=self.source,
            source_digest="cafe",
            classes=classes,
            container=self.container,
            config=self.config,
            codecs={"pillow": "12"},
            shards=shards,
            inputs=[self._write_inputs(storage, inputs)],
            accounting=Accounting(
                num_inputs=len(self._rows),
                num_records=outcomes["record"],
                num_duplicates=outcomes["duplicate"],
                num_filtered=outcomes["filtered"],
                num_quarantined=outcomes["quarantined"],
            ),
            splits=summarise_splits(shards),
            quarantine=Counter(row["reason"] for row in self._rows if row["outcome"] == "quarantined"),
            label_conflicts=self._conflicts,
        )
        return Made(storage, manifest, inputs)

    def _write_inputs(self, storage: Storage, inputs: pa.Table) -> TableFile:
        path = f"{data_dir(self.plan)}/inputs.parquet"
        return write_table(storage, path, inputs)

    def _row(self, uri: str, label: str | None, outcome: str) -> dict[str, Any]:
        row: dict[str, Any] = dict.fromkeys(INPUTS_SCHEMA.names)
        row |= {"uri": uri, "label": label, "outcome": outcome, "size_bytes": 1000, "mtime_ns": 1}
        self._rows.append(row)
        return row

    def _write_split(self, storage: Storage, split: str, classes: list[str]) -> list[Shard]:
        of_split = [record for record in self._records if record[2]["split"] == split]
        count = min(self.shards_per_split, len(of_split))
        return [
            self._write_shard(storage, split, i, count, of_split[i::count], classes) for i in range(count)
        ]

    def _write_shard(
        self, storage: Storage, split: str, i: int, count: int, members: list[Any], classes: list[str]
    ) -> Shard:
        stored, index = b"", []
        for label, number, row in members:
            pixels = self._pixels(classes.index(label), number)
            image = encode_jpeg(pixels, 85)
            height, width = pixels.shape[:2]
            example = ImageRecord(row["record_id"], image, classes.index(label), label, height, width, 3)
            packed = pack_record(build_example(example), self.container)
            index.append(
                {
                    "id": example.id, "offset_bytes": len(stored), "length_bytes": len(packed),
                    "label": example.label, "source_uri": row["uri"], "sha256": row["sha256"],
                    "stored_bytes": len(image), "height": height, "width": width, "source_format": "jpeg",
                    "source_height": height * 2, "source_width": width * 2 + 16 * (number % 7),
                    "source_bytes": len(image) * 3, "orientation": 1, **self.facts.get(row["uri"], {}),
                }
            )  # fmt: skip
            stored += packed
        path = f"{data_dir(self.plan)}/{shard_file(split, i, count, self.container)}"
        index_path = f"{data_dir(self.plan)}/{index_file(split, i, count)}"
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(index, INDEX_SCHEMA), sink)
        storage.write_atomic(path, stored)
        storage.write_atomic(index_path, sink.getvalue())
        return Shard(
            path=path,
            index_path=index_path,
            split=split,
            num_examples=len(members),
            num_bytes=len(stored),
            payload_bytes=sum(row["stored_bytes"] for row in index),
            sha256=hashlib.sha256(stored).hexdigest(),
            index_bytes=len(sink.getvalue()),
            index_sha256=hashlib.sha256(sink.getvalue()).hexdigest(),
            class_counts=dict(Counter(label for label, _, _ in members)),
        )

    def _pixels(self, label: int, number: int) -> Pixels:
        if self.picture is not None:
            return np.asarray(self.picture(label, number), np.uint8)
        ramp = np.linspace(0, 255, 48, dtype=np.uint8)
        pixels = np.empty((36, 48, 3), np.uint8)
        pixels[..., 0] = ramp
        pixels[..., 1] = (label * 53 + 40) % 256
        pixels[..., 2] = (number * 31) % 256
        return pixels
