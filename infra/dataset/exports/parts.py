"""The parts of an export: planned, one for each shard with records, then read and checked in batches.

Memory stays flat. For other libraries class names become text, values JSON, and encodings file suffixes.
"""

from __future__ import annotations

import base64
import io
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from shardmill.infra.codecs import encode
from shardmill.infra.codecs.arrays import decode_samples
from shardmill.infra.dataset.version import DatasetVersion, index_schema
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.format.contract import Shard, class_counts_of
from shardmill.infra.format.examples import ImageRecord, parse_example
from shardmill.infra.format.known_features import LABELS, NO_CLASS
from shardmill.infra.format.layout import shard_stem
from shardmill.infra.format.records import iter_records, unpack_record
from shardmill.infra.preparation import ARRAY
from shardmill.infra.storage.locations import uri_of
from shardmill.infra.strict_json import dump_json

# Increase this number when the same version would be exported as other bytes.
_REVISION = 1
# Places in our own shards, which mean nothing elsewhere.
_PLACES = ("offset_bytes", "length_bytes")


@dataclass(frozen=True, slots=True)
class Part:
    """The records of one shard.

    Attributes:
        shard: the shard of the version.
        stem: the name of the part's files, without suffix: ``train-00000-of-00012``.
        num_examples: number of records; of a view, those that it selects.
        class_counts: class name -> number of records.
    """

    shard: Shard
    stem: str
    num_examples: int
    class_counts: dict[str, int]

    @property
    def split(self) -> str:
        """The split of the records."""
        return self.shard.split


@dataclass(frozen=True, slots=True)
class Plan:
    """An export before anything is written.

    Attributes:
        version: the version or view.
        format_name: name of the format.
        copy: whether shards are copied where links would do.
        parts: in the order of the manifest.
        columns: of the index rows that a format may write: all but the places in our shards.
        plugins: distribution -> version, of a format that is a plugin.
    """

    version: DatasetVersion
    format_name: str
    copy: bool
    parts: tuple[Part, ...]
    columns: pa.Schema
    plugins: dict[str, str]

    @property
    def splits(self) -> dict[str, list[Part]]:
        """Split -> its parts."""
        found: dict[str, list[Part]] = {}
        for part in self.parts:
            found.setdefault(part.split, []).append(part)
        return found

    @property
    def num_examples(self) -> int:
        """Number of records, over all splits."""
        return sum(part.num_examples for part in self.parts)

    @property
    def digest(self) -> str:
        """Names the content of the export: equal digests give equal files."""
        manifest = self.version.manifest
        return digest_of(
            {
                "revision": _REVISION,
                "format": self.format_name,
                "copy": self.copy,
                "dataset": self.version.ref,
                "classes": manifest.classes,
                "shards": [[shard.sha256, shard.index_sha256] for shard in manifest.shards],
            }
            | ({"plugins": self.plugins} if self.plugins else {})
        )

    def counts(self) -> dict[str, dict[str, Any]]:
        """Split -> number of examples, of parts and of each class; JSON-able."""
        found = {}
        for split, parts in self.splits.items():
            classes: Counter[str] = Counter()
            for part in parts:
                classes.update(part.class_counts)
            found[split] = {
                "num_examples": sum(part.num_examples for part in parts),
                "num_shards": len(parts),
                "class_counts": dict(sorted(classes.items())),
            }
        return found


def plan_export(version: DatasetVersion, format_name: str, *, copy: bool, plugins: dict[str, str]) -> Plan:
    """Plan the export of a version or view; its shards without a record have no part."""
    parts = []
    for split in version.manifest.splits:
        counted = [(shard, _class_counts(version, shard)) for shard in version.shards(split)]
        chosen = [(shard, number, counts) for shard, (number, counts) in counted if number]
        parts += [
            Part(shard, shard_stem(split, index, len(chosen)), number, counts)
            for index, (shard, number, counts) in enumerate(chosen)
        ]
    kinds = {field.name: field.type for field in index_schema(version) if field.name not in _PLACES}
    plain = [(name, kind.value_type if types.is_dictionary(kind) else kind) for name, kind in kinds.items()]
    return Plan(version, format_name, copy, tuple(parts), pa.schema(plain), plugins)


def _class_counts(version: DatasetVersion, shard: Shard) -> tuple[int, dict[str, int]]:
    """Return the number of records of a shard that are exported, and of each class."""
    if version.view is None:
        return shard.num_examples, dict(shard.class_counts)
    rows = version.rows(shard, ["label", LABELS])
    return rows.num_rows, class_counts_of(rows, version.manifest.classes)


_BATCH_ROWS, _BATCH_BYTES = 1000, 16 << 20


@dataclass(slots=True)
class Batch:
    """Some consecutive records.

    Attributes:
        index: their rows, with the columns of the plan.
        records: the images with their labels.
        payloads: the serialised examples.
    """

    index: pa.Table
    records: list[ImageRecord] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)


def read_batches(plan: Plan, part: Part) -> Iterator[Batch]:
    """Yield the records of a part in stored order.

    Raises:
        CorruptDataError: the shard or its index is damaged, or they do not belong together.
    """
    version = plan.version
    rows = version.select(part.shard, version.index(part.shard))
    index = _conformed(rows, plan.columns)
    places = zip(*(rows[name].to_pylist() for name in ("offset_bytes", "length_bytes")), strict=True)
    first, batch = 0, Batch(index.slice(0, 0))
    num_bytes = 0
    for number, (record, payload) in enumerate(_checked(version, part, rows, list(places))):
        batch.records.append(record)
        batch.payloads.append(payload)
        num_bytes += len(payload)
        if len(batch.records) == _BATCH_ROWS or num_bytes >= _BATCH_BYTES:
            batch.index = index.slice(first, len(batch.records))
            yield batch
            first, batch, num_bytes = number + 1, Batch(index.slice(0, 0)), 0
    if batch.records:
        batch.index = index.slice(first, len(batch.records))
        yield batch


def _conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    labels = rows["label"]
    # Other libraries know a missing label as null.
    rows = rows.set_column(
        rows.column_names.index("label"),
        "label",
        pc.if_else(pc.equal(labels, NO_CLASS), pa.scalar(None, labels.type), labels),
    )
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _checked(
    version: DatasetVersion, part: Part, rows: pa.Table, places: list[tuple[int, int]]
) -> Iterator[tuple[ImageRecord, bytes]]:
    """Yield the records at ``places``, each compared with its row."""
    names = ("id", "label", "height", "width")
    expected = zip(*(rows[name].to_pylist() for name in names), strict=True)
    for payload, wanted in zip(_payloads(version, part, places), expected, strict=True):
        record = parse_example(payload)
        found = (record.id, record.label, record.height, record.width)
        if found != wanted:
            raise CorruptDataError(
                f"a record of {part.shard.path} is {found}, its index says {wanted}",
                f"run `shardmill verify {version.name}@{version.version}`",
            )
        yield record, payload


def _payloads(version: DatasetVersion, part: Part, places: list[tuple[int, int]]) -> Iterator[bytes]:
    path, container = part.shard.path, version.manifest.container
    if version.storage.is_local and 2 * len(places) < part.shard.num_examples:  # a sparse view
        for offset, length in places:
            yield unpack_record(version.storage.read_range(path, offset, length), container)
        return
    wanted = iter([*places, (-1, -1)])
    place: tuple[int, int] = next(wanted)
    for offset, length, payload in iter_records(version.storage, path, container):
        if (offset, length) == place:
            yield payload
            place = next(wanted)
        elif version.view is None:
            break
    if place[0] >= 0 or next(wanted, None) is not None:
        raise CorruptDataError(
            f"{path} does not hold the records that its index names",
            f"run `shardmill verify {version.name}@{version.version}`",
        )


_SUFFIXES = {"jpeg": "jpg", "png": "png", "webp": "webp", ARRAY: "npy"}


def class_names(plan: Plan) -> list[str]:
    """Class names as text; bytes that are not UTF-8 are escapes, as in URIs."""
    return [uri_of(name) for name in plan.version.manifest.classes]


def label_names(plan: Plan, batch: Batch) -> pa.Array:
    """The class name of each record of a batch; null where a record has no label."""
    labels = batch.index["label"].combine_chunks()
    return pa.array(class_names(plan), pa.string()).take(labels)


def image_suffix(plan: Plan, raw: str) -> str:
    """File suffix of the images, without a dot; ``raw`` is that of raw pixels."""
    return _SUFFIXES.get(plan.version.manifest.image_encoding, raw)


def as_npy(plan: Plan, record: ImageRecord) -> bytes:
    """A raw image or an array as a file of numpy: [H, W, C]."""
    sink = io.BytesIO()
    np.save(sink, _pixels(plan, record), allow_pickle=False)
    return sink.getvalue()


def as_picture(plan: Plan, record: ImageRecord) -> bytes:
    """The stored image as a file that any program opens: raw pixels become a PNG, arrays files of numpy."""
    encoding = plan.version.manifest.image_encoding
    if encoding == ARRAY:
        return as_npy(plan, record)
    return encode(_pixels(plan, record), "png", 100) if encoding == "raw" else record.image


def json_rows(plan: Plan, batch: Batch) -> Iterator[dict[str, Any]]:
    """The rows of a batch with their class names, JSON-able."""
    names = label_names(plan, batch).to_pylist()
    for row, name in zip(batch.index.to_pylist(), names, strict=True):
        yield {"label_name": name} | {key: _json_value(value) for key, value in row.items()}


def _json_value(value: Any) -> Any:
    """A value as JSON can hold it: bytes as base64, NaN and infinities as null, times as ISO 8601."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_json_value(each) for each in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


def json_line(value: dict[str, Any]) -> bytes:
    """Canonical JSON in UTF-8 with a line feed."""
    return (dump_json(value, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _pixels(plan: Plan, record: ImageRecord) -> np.ndarray[Any, np.dtype[Any]]:
    manifest = plan.version.manifest
    if manifest.dtype is None:
        return np.frombuffer(record.image, np.uint8).reshape(record.shape)
    return decode_samples(record.image, manifest.image_encoding, record.shape, manifest.dtype)
