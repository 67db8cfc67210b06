"""What ``prepare`` says of its result: the object that ``--json`` prints, and the lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from infra.catalog import DatasetVersion
from infra.contract import manifest_file


@dataclass(frozen=True, slots=True)
class Reused:
    """What a run had not to do.

    Attributes:
        blocks, images, shards: finished by an earlier run that was interrupted.
        known_files: that the version before knew, without being read.
        known_contents: that were read, and found to be stored in the version before.
        inherited_shards: of the version before.
    """

    blocks: int = 0
    images: int = 0
    shards: int = 0
    known_files: int = 0
    known_contents: int = 0
    inherited_shards: int = 0


def outcome_of(
    version: DatasetVersion,
    labels: pa.ChunkedArray,
    reused: Reused,
    seconds: float,
    *,
    unchanged: bool,
) -> dict[str, Any]:
    """The result of a run.

    Args:
        version: what was published, or found unchanged.
        labels: of all files that were to be read: the classes before anything was lost or dropped.
        reused: what an earlier run had finished.
        seconds: of the whole run.
        unchanged: whether there was nothing to do.
    """
    manifest = version.manifest
    encoded = 0 if unchanged else len(labels) - reused.images - reused.known_files - reused.known_contents
    return {
        "dataset": manifest.dataset,
        "version": manifest.version,
        "unchanged": unchanged,
        **manifest.accounting.model_dump(),
        "splits": {name: split.model_dump() for name, split in manifest.splits.items()},
        "container": manifest.container,
        "container_reason": manifest.container_reason,
        "classes": manifest.classes,
        "class_counts_before": class_counts(labels),
        "quarantine": manifest.quarantine,
        "num_label_conflicts": len(manifest.label_conflicts),
        "near_duplicates": _near_duplicates(version),
        "leaks": manifest.leaks.model_dump(),
        "num_cross_split_duplicates": manifest.cross_split_duplicates,
        "source": manifest.source,
        "manifest": f"{version.storage.uri}/{manifest_file(manifest.version)}",
        "report": f"{version.storage.uri}/{manifest.report}" if manifest.report else None,
        "reused": {"blocks": reused.blocks, "images": reused.images, "shards": reused.shards},
        "parent": manifest.parent,
        "known": {"files": reused.known_files, "contents": reused.known_contents},
        "inherited_shards": reused.inherited_shards,
        "num_encoded": encoded,
        "seconds": round(seconds, 3),
        "images_per_second": round(encoded / seconds, 1) if seconds else 0.0,
    }


def class_counts(labels: pa.ChunkedArray) -> dict[str, int]:
    """Class -> number of files, sorted by name."""
    counted = pc.value_counts(labels).to_pylist() if len(labels) else []
    return dict(sorted((str(entry["values"]), int(entry["counts"])) for entry in counted))


def summary(outcome: Mapping[str, Any]) -> Iterator[str]:
    """The result in lines for people."""
    ref = f"{outcome['dataset']}@{outcome['version']}"
    if outcome["unchanged"]:
        yield f"{ref} is up to date: nothing has changed in {outcome['source']}"
    else:
        yield f"Published {ref} from {outcome['source']}"
    yield (
        f"  {counted(outcome['num_inputs'], 'input')} = {counted(outcome['num_records'], 'record')} "
        f"+ {counted(outcome['num_duplicates'], 'duplicate')} + {outcome['num_filtered']:,} filtered "
        f"+ {outcome['num_quarantined']:,} quarantined"
    )
    if outcome["quarantine"]:
        yield "  quarantined: " + ", ".join(
            f"{why} {count:,}" for why, count in outcome["quarantine"].items()
        )
    if conflicts := outcome["num_label_conflicts"]:
        have = "image has" if conflicts == 1 else "images have"
        yield f"  {conflicts:,} {have} the same bytes under different labels (see the report)"
    if crossing := outcome["num_cross_split_duplicates"]:
        repeat = "duplicate repeats a record" if crossing == 1 else "duplicates repeat records"
        yield f"  {crossing:,} {repeat} of another given split; each is kept once (see the report)"
    if known := sum(outcome.get("known", {}).values()):
        yield (
            f"  {counted(known, 'image')} known from version {outcome['parent']}, "
            f"{outcome['num_encoded']:,} new; {counted(outcome['inherited_shards'], 'shard')} inherited"
        )
    yield from _groups(outcome)
    yield from split_table(outcome["splits"])
    if reason := outcome.get("container_reason"):
        yield f"  container {outcome['container']} ({reason})"
    if not outcome["unchanged"]:
        yield (
            f"  {outcome['seconds']:.1f} s, {outcome['images_per_second']:,.0f} images/s, "
            f"peak memory {size(outcome['peak_rss_bytes'])}"
        )
    if outcome["report"]:
        yield f"  report: {outcome['report']}"


def _near_duplicates(version: DatasetVersion) -> dict[str, int] | None:
    """Records that look the same, groups of them, and groups under several labels."""
    part = version.manifest.near_duplicates
    if part is None:
        return None
    table = version.checked_table(part.path, part.sha256).select(["group", "label"])
    labels = table.group_by("group").aggregate([("label", "count_distinct")])["label_count_distinct"]
    conflicts = pc.sum(pc.cast(pc.greater(labels, 1), pa.int64())).as_py() or 0
    return {"num_records": table.num_rows, "num_groups": len(labels), "num_conflicts": conflicts}


def _groups(outcome: Mapping[str, Any]) -> Iterator[str]:
    """What looks the same, and which groups the splits divide."""
    near = outcome.get("near_duplicates")
    if near and near["num_groups"]:
        conflicts = near["num_conflicts"]
        several = f", {counted(conflicts, 'group')} under several labels" if conflicts else ""
        groups = counted(near["num_groups"], "group")
        yield f"  {near['num_records']:,} records look the same, in {groups}{several} (see the report)"
    leaks = outcome.get("leaks") or {}
    divided = leaks.get("near_duplicate_groups", 0) + leaks.get("key_groups", 0)
    if divided:
        dropped = leaks["dropped_from_train"]
        done = f"; {counted(dropped, 'record')} of train left out" if dropped else ""
        are = "is" if divided == 1 else "are"
        yield f"  {counted(divided, 'group')} {are} divided among the splits{done} (see the report)"


def split_table(splits: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A line a split."""
    for name, split in splits.items():
        shards = counted(split["num_shards"], "shard")
        examples = f"{split['num_examples']:>9,} examples"
        yield f"  {name:<10} {examples}  {shards:>12}  {size(split['num_bytes']):>10}"


def counted(number: int, thing: str) -> str:
    """1 shard; 1,200 shards"""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def size(num_bytes: float) -> str:
    """12.3 MiB"""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if num_bytes < 1024:
            return f"{num_bytes:,.0f} B" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:,.1f} TiB"
