"""Plan an export: a part for each shard with records, and the columns of the index that it takes along."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from shardmill.infra.dataset.version import DatasetVersion, index_schema
from shardmill.infra.digests import digest_of
from shardmill.infra.format.contract import Shard, class_counts_of
from shardmill.infra.format.labels import LABELS
from shardmill.infra.format.layout import shard_stem

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
    """

    version: DatasetVersion
    format_name: str
    copy: bool
    parts: tuple[Part, ...]
    columns: pa.Schema

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


def plan_export(version: DatasetVersion, format_name: str, *, copy: bool = False) -> Plan:
    """Plan the export of a version or view; its shards without a record have no part."""
    parts = []
    for split in version.manifest.splits:
        counted = [(shard, _class_counts(version, shard)) for shard in version.shards(split)]
        chosen = [(shard, number, counts) for shard, (number, counts) in counted if number]
        parts += [
            Part(shard, shard_stem(split, index, len(chosen)), number, counts)
            for index, (shard, number, counts) in enumerate(chosen)
        ]
    fields = [_plain(field) for field in index_schema(version) if field.name not in _PLACES]
    return Plan(version, format_name, copy, tuple(parts), pa.schema(fields))


def _class_counts(version: DatasetVersion, shard: Shard) -> tuple[int, dict[str, int]]:
    """Return the number of records of a shard that are exported, and of each class."""
    if version.view is None:
        return shard.num_examples, dict(shard.class_counts)
    rows = version.rows(shard, ["label", LABELS])
    return rows.num_rows, class_counts_of(rows, version.manifest.classes)


def _plain(field: pa.Field) -> pa.Field:
    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    return pa.field(field.name, kind)
