"""Check every file, record and count of a published version against its manifest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from shardmill.infra.arguments import checked
from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs.masks import classes_shown, decode_stored_mask
from shardmill.infra.dataset.croissant import describes
from shardmill.infra.dataset.publishing import report_sha256
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import stream_sha256
from shardmill.infra.errors import CorruptDataError, FormatVersionError, NotFoundError, StorageError
from shardmill.infra.format.contract import (
    DUPLICATE,
    OUTCOMES,
    RECORD,
    Shard,
    class_counts_of,
    summarise_splits,
)
from shardmill.infra.format.examples import ImageRecord, parse_whole_example
from shardmill.infra.format.features import are_same, feature_values
from shardmill.infra.format.known_features import LABELS, MASK_BYTES, MASK_PIXELS
from shardmill.infra.format.layout import croissant_file, decode_manifest, is_sealed, manifest_file
from shardmill.infra.format.records import iter_records

OnProgress = Callable[[int, int], None]  # records done, records in all


@dataclass
class VerifyReport:
    """The result of a verification.

    Attributes:
        problems: one line for each problem; empty if there is none.
        notes: one line for each thing that could not be checked.
        num_records: number of records that were read and have no problem.
        num_bytes: number of bytes of shards that were read.
    """

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    num_records: int = 0
    num_bytes: int = 0


@checked
def verify(version: DatasetVersion, on_progress: OnProgress | None = None) -> VerifyReport:
    """Read all of a version and compare it with its manifest, its indexes and its inputs.

    Checks the manifest's own checksum; the size and SHA-256 of every file; frame, checksum, identity and
    label of every record; the balance of the shards; and that every input has exactly one outcome. Memory
    does not grow with the shards.
    """
    report = VerifyReport()
    _check_manifest(version, report)
    total = version.manifest.accounting.num_records
    ids: Counter[str] = Counter()
    for shard in version.manifest.shards:
        try:
            _verify_shard(version, shard, report, ids)
        except (CorruptDataError, NotFoundError, StorageError) as error:
            report.problems.append(f"{shard.path}: {error.message}")
        if on_progress is not None:
            on_progress(report.num_records, total)
    repeated = [record_id for record_id, count in ids.items() if count > 1]
    if repeated:
        report.problems.append(f"{len(repeated)} record ids occur more than once, for example {repeated[0]}")
    report.problems += _check_balance(version)
    if summarise_splits(version.manifest.shards) != version.manifest.splits:
        report.problems.append("the manifest's splits are not the sums of its shards")
    try:
        report.problems += _check_inputs(version, ids)
    except (CorruptDataError, NotFoundError, StorageError) as error:
        report.problems.append(error.message)
    return report


def _check_manifest(version: DatasetVersion, report: VerifyReport) -> None:
    """Check the stored manifest against its checksum, and the report against the manifest."""
    manifest, path = version.manifest, manifest_file(version.version)
    try:
        stored = version.storage.read_bytes(path)
        if decode_manifest(stored, path) != manifest:
            report.problems.append(f"{path} is not the manifest that was opened")
        if not is_sealed(stored):
            report.notes.append(f"{path} has no checksum (an early release wrote it): changes would not show")
        if not describes(version.storage, manifest):
            report.problems.append(
                f"{croissant_file(version.version)} was changed: it does not describe the manifest"
            )
        if manifest.report is None:
            return
        found = report_sha256(version.storage, manifest.report)
        if manifest.report_sha256 is None:
            report.notes.append(f"{manifest.report} has no checksum in the manifest: changes would not show")
        elif found != manifest.report_sha256:
            report.problems.append(f"{manifest.report} was changed: its SHA-256 differs from the manifest's")
    except (CorruptDataError, FormatVersionError, NotFoundError, StorageError) as error:
        report.problems.append(error.message)


def _verify_shard(version: DatasetVersion, shard: Shard, report: VerifyReport, ids: Counter[str]) -> None:
    _check_file(version, shard.path, shard.num_bytes, shard.sha256)
    _check_file(version, shard.index_path, shard.index_bytes, shard.index_sha256)
    report.num_bytes += shard.num_bytes
    index = version.index(shard)
    rows = index.to_pylist()
    found = 0
    for offset, length, payload in iter_records(version.storage, shard.path, version.manifest.container):
        if found == len(rows):
            raise CorruptDataError(f"has more records than its index ({len(rows)})")
        _check_record(version, rows[found], offset, length, payload)
        ids[rows[found]["id"]] += 1
        found += 1
        report.num_records += 1
    if found != len(rows):
        raise CorruptDataError(f"has {found} records, its index has {len(rows)}")
    if class_counts_of(index, version.manifest.classes) != {
        name: count for name, count in shard.class_counts.items() if count
    }:
        raise CorruptDataError("its class counts differ from the manifest")


def _check_file(version: DatasetVersion, path: str, num_bytes: int, sha256: str) -> None:
    with version.storage.open_input(path) as stream:
        size, found = stream.size(), stream_sha256(stream)
    if size != num_bytes:
        raise CorruptDataError(f"{path} has {size} bytes, the manifest says {num_bytes}")
    if found != sha256:
        raise CorruptDataError(f"{path} was changed: its SHA-256 differs from the manifest's")


def _check_record(
    version: DatasetVersion, row: dict[str, Any], offset: int, length: int, payload: bytes
) -> None:
    if (offset, length) != (row["offset_bytes"], row["length_bytes"]):
        raise CorruptDataError(
            f"record {row['id']} is at byte {offset} ({length} bytes), "
            f"its index says {row['offset_bytes']} ({row['length_bytes']} bytes)"
        )
    record, features = parse_whole_example(payload)
    has_class = version.manifest.label_kind == "class"
    if has_class and not 0 <= record.label < len(version.manifest.classes):
        raise CorruptDataError(
            f"record {record.id} has label {record.label}, "
            f"but there are only {len(version.manifest.classes)} classes"
        )
    stored = (record.id, record.label, len(record.image), record.height, record.width)
    indexed = (row["id"], row["label"], row["stored_bytes"], row["height"], row["width"])
    if stored != indexed:
        raise CorruptDataError(f"record {record.id} is {stored}, its index says {indexed}")
    if not are_same(features, feature_values(version.manifest.extra_features, row)):
        raise CorruptDataError(
            f"record {record.id} has other features than its index says: {sorted(features)}"
        )
    if version.manifest.mask is not None or record.mask is not None:
        _check_mask(version, record, row)
    if has_class and record.label_name != version.manifest.classes[record.label]:
        raise CorruptDataError(
            f"record {record.id} has label {record.label} but class name {record.label_name!r}; "
            f"the manifest says {version.manifest.classes[record.label]!r}"
        )


def _check_mask(version: DatasetVersion, record: ImageRecord, row: dict[str, Any]) -> None:
    """Check the mask of a record: its size, its type, and the classes that its index says it shows."""
    stored = version.manifest.mask
    if stored is None or record.mask is None:
        has = "no mask" if record.mask is None else "a mask"
        raise CorruptDataError(f"record {record.id} has {has}; the manifest says otherwise")
    try:
        numbers = decode_stored_mask(record.mask)
    except ImageRejected as rejected:
        raise CorruptDataError(f"the mask of record {record.id} is {rejected.message}") from rejected
    found = (numbers.shape, str(numbers.dtype), len(record.mask), *classes_shown(numbers, stored.ignore))
    said = ((record.height, record.width), stored.dtype, row[MASK_BYTES], row[LABELS], row[MASK_PIXELS])
    if found != said:
        raise CorruptDataError(f"the mask of record {record.id} is {found}, its index says {said}")


def _check_balance(version: DatasetVersion) -> list[str]:
    """Check that the shards of one plan and split differ by at most one, in records and in each class."""
    groups: dict[tuple[str, str], list[Shard]] = {}
    for shard in version.manifest.shards:
        groups.setdefault((shard.split, shard.path.rpartition("/")[0]), []).append(shard)
    problems = []
    for (split, folder), shards in groups.items():
        counts = {"records": [shard.num_examples for shard in shards]}
        # Of several labels, only each set of them is divided evenly.
        names = {name for shard in shards for name in shard.class_counts}
        for name in names if version.manifest.label_kind == "class" else ():
            counts[f"class {name!r}"] = [shard.class_counts.get(name, 0) for shard in shards]
        problems += [
            f"{folder}: {split} shards are out of balance: {min(found)} to {max(found)} of {what}"
            for what, found in sorted(counts.items())
            if max(found) - min(found) > 1
        ]
    return problems


def _check_inputs(version: DatasetVersion, ids: Counter[str]) -> list[str]:
    manifest = version.manifest
    for part in [*manifest.inputs, *([manifest.near_duplicates] if manifest.near_duplicates else [])]:
        _check_file(version, part.path, part.num_bytes, part.sha256)
    inputs = version.inputs()
    found = dict.fromkeys(OUTCOMES, 0)
    counted = pc.value_counts(inputs["outcome"]).to_pylist() if inputs.num_rows else []
    found |= {entry["values"]: entry["counts"] for entry in counted}
    expected, problems = manifest.accounting.outcomes, []
    if found != expected:
        problems.append(f"the inputs have outcomes {found}, the manifest says {expected}")
    if inputs.num_rows != len(pc.unique(inputs["uri"])):
        problems.append("an input has more than one row")
    kept = inputs.filter(pc.equal(inputs["outcome"], RECORD))["record_id"].to_pylist()
    if set(kept) != set(ids):
        problems.append("the record ids of the inputs differ from those in the shards")
    repeats = inputs.filter(pc.equal(inputs["outcome"], DUPLICATE))["record_id"].to_pylist()
    if not set(repeats) <= set(kept):
        problems.append("a duplicate names a record that does not exist")
    return problems + _check_near_duplicates(version, set(kept))


def _check_near_duplicates(version: DatasetVersion, records: set[str]) -> list[str]:
    """Check that the members of near-duplicate groups are records of the version, or were dropped."""
    part = version.manifest.near_duplicates
    if part is None:
        return []
    table = version.checked_table(part.path, part.sha256)
    problems = []
    if table.num_rows != part.num_rows:
        problems.append(f"{part.path} has {table.num_rows} rows, the manifest says {part.num_rows}")
    present = table.filter(pc.is_valid(table["split"]))["record_id"].to_pylist()
    if not set(present) <= records:
        problems.append("the near-duplicates name a record that does not exist")
    dropped = table.num_rows - len(present)
    if dropped > version.manifest.leaks.dropped_from_train:
        problems.append(
            f"{dropped} near-duplicates were dropped, "
            f"the manifest says {version.manifest.leaks.dropped_from_train}"
        )
    return problems
