"""What ``prepare`` says of its result: the lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infra.wording import counted


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
            f"peak memory {size(outcome['peak_memory_bytes'])}"
        )
    if outcome["report"]:
        yield f"  report: {outcome['report']}"


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
        examples, shards = counted(split["num_examples"], "example"), counted(split["num_shards"], "shard")
        yield f"  {name:<10} {examples:>18}  {shards:>12}  {size(split['num_bytes']):>10}"


def size(num_bytes: float) -> str:
    """12.3 MiB"""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if num_bytes < 1024:
            return f"{num_bytes:,.0f} B" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:,.1f} TiB"
