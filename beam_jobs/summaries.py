"""Lines that ``prepare`` prints about a published version, or about the estimate of a dry run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shardmill.infra.readable import counted, readable_bytes

_CLASSES_SHOWN = 20
_SETTINGS_SHOWN = 12


def version_lines(outcome: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about the result of a run.

    Args:
        outcome: as ``shardmill.beam_jobs.publish.result.outcome_of`` returns it.
    """
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
    yield from _changed(outcome, "the version before")
    yield from _group_lines(outcome)
    yield from split_lines(outcome["splits"])
    if stored_from := outcome.get("stored_from"):
        copied = stored_from["source"]
        encoded = sum(stored_from.values()) - copied
        yield f"  {counted(copied, 'image')} copied unchanged, {encoded:,} encoded"
    if reason := outcome.get("container_reason"):
        yield f"  container {outcome['container']} ({reason})"
    if not outcome["unchanged"]:
        yield (
            f"  {outcome['seconds']:.1f} s, {outcome['images_per_second']:,.0f} images/s, "
            f"peak memory {readable_bytes(outcome['peak_memory_bytes'])}"
        )
    if outcome["report"]:
        yield f"  report: {outcome['report']}"


def setting_lines(changed: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield settings with their values before and now, a line each."""
    for name, (before, now) in list(changed.items())[:_SETTINGS_SHOWN]:
        yield f"{name}: {before} -> {now}"
    if len(changed) > _SETTINGS_SHOWN:
        yield f"and {len(changed) - _SETTINGS_SHOWN:,} more"


def _changed(outcome: Mapping[str, Any], since: str) -> Iterator[str]:
    """Tell which settings differ from those of the version before."""
    if changed := outcome.get("settings_changed"):
        yield f"  {counted(len(changed), 'setting')} changed since {since}:"
        yield from (f"    {line}" for line in setting_lines(changed))


def _group_lines(outcome: Mapping[str, Any]) -> Iterator[str]:
    """Tell of near-duplicates, and of groups that the splits divide."""
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


def split_lines(splits: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Tell the size of each split, a line each."""
    for name, split in splits.items():
        examples, shards = counted(split["num_examples"], "example"), counted(split["num_shards"], "shard")
        yield f"  {name:<10} {examples:>18}  {shards:>12}  {readable_bytes(split['num_bytes']):>10}"


def _understood(inputs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Show how the first inputs were understood, a line each."""
    for row in inputs:
        given = [f"{name} {row[name]}" for name in ("split", "group") if row[name] is not None]
        label = _mask_in_words(row) if "mask" in row else str(row["label"])
        yield f"  {row['uri']}: {', '.join([label, *given])}"


def _mask_in_words(row: Mapping[str, Any]) -> str:
    """Describe the mask that was read for an input, or the fault that was found."""
    if "problem" in row:
        return f"mask {row['mask']}, left out: {row['problem']}"
    if "shares" not in row:
        return f"mask {row['mask']}"
    shown = sorted(row["shares"].items(), key=lambda item: -item[1])[:_CLASSES_SHOWN]
    shares = ", ".join(f"{name} {share:.1%}" for name, share in shown) or "no class"
    return f"mask {row['mask']}, {row['width']}×{row['height']} pixels stored: {shares}"


def forecast_lines(outcome: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about the estimated result of a run.

    Args:
        outcome: as ``shardmill.beam_jobs.dry_run.dry_run`` returns it.
    """
    ref = f"{outcome['dataset']}@{outcome['next_version']}"
    yield f"Dry run: {outcome['source']} would become {ref}; nothing was written"
    if outcome["unchanged"]:
        yield "  nothing has changed since the newest version, so the run would end at once"
    yield (
        f"  {counted(outcome['num_inputs'], 'input')} ({readable_bytes(outcome['source_bytes'])}): "
        f"{outcome['num_known']:,} known, {outcome['num_to_read']:,} to read, "
        f"{outcome['num_filtered']:,} filtered, "
        f"{outcome['num_quarantined']:,} quarantined already"
    )
    yield from _changed(outcome, "the newest version")
    if outcome["left_out"]:
        by_count = sorted(outcome["left_out"].items(), key=lambda item: (-item[1], item[0]))
        yield "  left out: " + ", ".join(f"{why} {count:,}" for why, count in by_count)
    yield from _understood(outcome["first_inputs"])
    classes = outcome["classes"]
    yield f"  {counted(len(classes), 'class', 'classes')}:"
    largest = sorted(classes.items(), key=lambda item: (-item[1], item[0]))
    for name, count in largest[:_CLASSES_SHOWN]:
        yield f"    {count:>9,}  {name}"
    if len(largest) > _CLASSES_SHOWN:
        yield f"    and {len(largest) - _CLASSES_SHOWN:,} smaller ones"
    yield f"  splits, were every file a record ({outcome['container']}):"
    yield from split_lines(outcome["splits"])
    sample = outcome["sample"]
    if not outcome["sampled"]:
        yield "  sizes and times are not known before the images are fetched"
        return
    yield (
        f"  disk: about {readable_bytes(outcome['disk_bytes'])}, twice that while it runs; "
        f"time: about {outcome['seconds']:,.0f} s"
    )
    yield (
        f"  (measured on {counted(sample['num_images'], 'file')}, {sample['num_stored']} of them usable: "
        f"{sample['images_per_second']:,.0f} images/s in one thread)"
    )
    if sample["left_out"]:
        yield "  left out of these: " + ", ".join(f"{why} {n:,}" for why, n in sample["left_out"].items())
