"""A dry run (beam_jobs.dry_run) in lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from beam_jobs.summary import size, split_table
from infra.wording import counted

_CLASSES_SHOWN = 20


def describe(outcome: Mapping[str, Any]) -> Iterator[str]:
    """The forecast in lines for people."""
    ref = f"{outcome['dataset']}@{outcome['next_version']}"
    yield f"Dry run: {outcome['source']} would become {ref}; nothing was written"
    if outcome["unchanged"]:
        yield "  nothing has changed since the newest version, so the run would end at once"
    yield (
        f"  {counted(outcome['num_inputs'], 'input')} ({size(outcome['source_bytes'])}): "
        f"{outcome['num_known']:,} known, {outcome['num_to_read']:,} to read, "
        f"{outcome['num_filtered']:,} filtered, "
        f"{outcome['num_quarantined']:,} quarantined already"
    )
    classes = outcome["classes"]
    yield f"  {len(classes):,} {'class' if len(classes) == 1 else 'classes'}:"
    largest = sorted(classes.items(), key=lambda item: (-item[1], item[0]))
    for name, count in largest[:_CLASSES_SHOWN]:
        yield f"    {count:>9,}  {name}"
    if len(largest) > _CLASSES_SHOWN:
        yield f"    and {len(largest) - _CLASSES_SHOWN:,} smaller ones"
    yield f"  splits, were every file a record ({outcome['container']}):"
    yield from split_table(outcome["splits"])
    sample = outcome["sample"]
    yield (
        f"  disk: about {size(outcome['disk_bytes'])}, twice that while it runs; "
        f"time: about {outcome['seconds']:,.0f} s"
    )
    yield (
        f"  (measured on {counted(sample['num_images'], 'file')}, {sample['num_stored']} of them usable: "
        f"{sample['images_per_second']:,.0f} images/s in one thread)"
    )
