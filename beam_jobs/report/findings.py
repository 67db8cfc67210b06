"""Findings to check before training on a version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from shardmill.beam_jobs.config import SourceConfig
from shardmill.beam_jobs.report.figures.groups import NearDuplicateGroups
from shardmill.beam_jobs.report.figures.inputs import ClassRow
from shardmill.infra.dataset.drift.figures import Drift
from shardmill.infra.format.contract import SPLITS, Manifest
from shardmill.infra.readable import counted
from shardmill.infra.settings import with_new_names

# A class with fewer training examples than this can hardly be learned or measured.
FEW_EXAMPLES = 20
# From this ratio of the largest to the smallest class on, "uniform" balance is suggested.
IMBALANCE_RATIO = 3.0
NAMES_SHOWN = 6

Level = Literal["good", "note", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about the version, and its remedy."""

    level: Level
    text: str
    remedy: str = ""


def find(
    manifest: Manifest,
    classes: Sequence[ClassRow],
    near: NearDuplicateGroups | None = None,
    num_salvaged: int = 0,
    drift: Drift | None = None,
) -> list[Finding]:
    """Return the findings, the most serious first; never empty."""
    found = [
        *_losses(manifest),
        *empty_splits(manifest),
        *_drift(drift),
        *_conflicts(manifest),
        *_alike(manifest, near or NearDuplicateGroups()),
        *_salvaged(num_salvaged),
        *untrained_classes(manifest),
        *_classes(manifest, classes),
        *_balance(manifest, classes),
    ]
    order: dict[Level, int] = {"warning": 0, "note": 1, "good": 2}
    return sorted(found, key=lambda finding: order[finding.level])


def _losses(manifest: Manifest) -> list[Finding]:
    accounting = manifest.accounting
    found = [
        Finding(
            "good",
            f"Every input is accounted for: {accounting.num_inputs:,} inputs = "
            f"{_records(accounting.num_records)} + {_duplicates(accounting.num_duplicates)} + "
            f"{accounting.num_filtered:,} filtered + {accounting.num_quarantined:,} quarantined.",
        )
    ]
    if accounting.num_quarantined:
        usable = accounting.num_inputs - accounting.num_filtered
        budget = manifest.config.get("failure_budget")
        allowed = f"; the failure budget allowed {budget:.1%}" if isinstance(budget, int | float) else ""
        found.append(
            Finding(
                "note",
                f"{accounting.num_quarantined:,} {_inputs(accounting.num_quarantined)} could not be used "
                f"({accounting.num_quarantined / usable:.2%}{allowed}).",
                "The quarantine below names each reason and its remedy.",
            )
        )
    return found


def empty_splits(manifest: Manifest) -> list[Finding]:
    """Return a finding if a split that the settings ask for has no example, with what may join all images."""
    empty = manifest.empty_splits
    if not empty or not manifest.accounting.num_records:
        return []
    held = " and ".join(
        name for name in SPLITS if name in manifest.splits and manifest.splits[name].num_examples
    )
    return [
        Finding(
            "warning",
            f"No example is in {' and '.join(empty)}: all {_records(manifest.accounting.num_records)} are in "
            f"{held}.",
            _remedy_of_empty(manifest),
        )
    ]


def untrained_classes(manifest: Manifest) -> list[Finding]:
    """Return a finding if validation or test have examples of classes that train has none of."""
    train = manifest.splits.get("train")
    if train is None or not train.num_examples:
        return []
    others = {
        name for split in manifest.splits.values() for name, count in split.class_counts.items() if count
    }
    missing = sorted(name for name in others if not train.class_counts.get(name))
    if not missing:
        return []
    return [
        Finding(
            "warning",
            f"Without any example in train, and in another split: {_names(missing)}.",
            "No model can learn them: correct their names, or give images of each to train.",
        )
    ]


def _remedy_of_empty(manifest: Manifest) -> str:
    source = with_new_names(SourceConfig, manifest.config.get("source", {}))
    columns = source.get("columns", {})
    if _source_gives_splits(source):
        return "The source gives the splits: give images of each, or give no splits."
    if manifest.accounting.num_records < FEW_EXAMPLES:
        return "There are too few images to divide: add some; or, for given splits, images of each."
    groups = manifest.config.get("groups", {})
    named = (("groups.pattern", groups.get("pattern")), ("source.columns.group", columns.get("group")))
    keys = [setting for setting, value in named if value]
    joins = [f"name a finer key with {setting}" for setting in keys]
    if groups.get("near_duplicates") and _most_look_alike(manifest):
        joins.append("set groups.near_duplicates=false if images look alike by nature")
    remedies = [f"A group stays in one split: {', or '.join(joins)}."] if joins else []
    return " ".join([*remedies, "If the source gives the splits, give images of each, or give no splits."])


def _source_gives_splits(source: Mapping[str, Any]) -> bool:
    """Tell whether settings of ``source`` say that it gives splits; folders may give them without a word."""
    objects = source.get("objects", {})
    return bool(
        source.get("kind") == "tfds"
        or source.get("layout") == "splits"
        or source.get("columns", {}).get("split")
        or objects.get("image_sets")
        or source.get("masks", {}).get("image_sets")
        or any(part.get("split") for part in objects.get("annotations", ()))
    )


def _most_look_alike(manifest: Manifest) -> bool:
    """Tell whether near-duplicates are so many that their groups may have left a split empty."""
    near = manifest.near_duplicates
    return near is not None and 2 * near.num_rows >= manifest.accounting.num_records


def _drift(drift: Drift | None) -> list[Finding]:
    if drift is None or not drift.exceeded:
        return []
    count = len(drift.exceeded)
    return [
        Finding(
            "warning",
            f"The images differ from those of {drift.before} in {counted(count, 'figure')}: "
            f"{drift.exceeded[0]}.",
            "All figures are under Drift.",
        )
    ]


def _conflicts(manifest: Manifest) -> list[Finding]:
    found = []
    if manifest.label_conflicts:
        count = len(manifest.label_conflicts)
        found.append(
            Finding(
                "warning",
                f"{count:,} {'image has' if count == 1 else 'images have'} the same bytes under "
                "different labels.",
                "One of the labels is wrong. They are shown below; correct the source and prepare again.",
            )
        )
    if manifest.cross_split_duplicates:
        found.append(
            Finding(
                "warning",
                f"Duplicates across given splits: {manifest.cross_split_duplicates:,}.",
                "Each is stored once, so no split leaks into another. Check the given splits.",
            )
        )
    return found


def _alike(manifest: Manifest, near: NearDuplicateGroups) -> list[Finding]:
    found = []
    leaks, dropped = manifest.leaks, manifest.leaks.dropped_from_train
    divided = leaks.near_duplicate_groups + leaks.key_groups
    if divided:
        found.append(
            Finding(
                "note" if dropped else "warning",
                f"{divided:,} {'group has' if divided == 1 else 'groups have'} members in several splits"
                + (f"; {_records(dropped)} of train left out because of it." if dropped else "."),
                "Shown below."
                if dropped
                else 'Shown below; groups.leakage = "drop-from-train" leaves their train records out.',
            )
        )
    if near.num_conflicts and manifest.label_kind in ("class", "multi"):
        count = near.num_conflicts
        found.append(
            Finding(
                "warning",
                f"{count:,} {'group' if count == 1 else 'groups'} of images that look the same "
                f"{'has' if count == 1 else 'have'} different labels.",
                "One of the labels may be wrong. They are shown below; correct the source and prepare again.",
            )
        )
    return found


def _salvaged(count: int) -> list[Finding]:
    if not count:
        return []
    made = "was" if count == 1 else "were"
    return [
        Finding(
            "note",
            f"{_records(count)} {made} salvaged from images that end early; their missing parts are grey.",
            "Set image.allow_truncated to false to quarantine them; the index marks them as salvaged.",
        )
    ]


def _classes(manifest: Manifest, classes: Sequence[ClassRow]) -> list[Finding]:
    found = []
    known = set(manifest.classes)
    untrained = {row.name for row in classes if row.splits and not row.splits.get("train")}
    for split in manifest.splits:
        told = untrained if split == "train" else set()
        absent = [row.name for row in classes if row.name in known - told and not row.splits.get(split)]
        if absent and manifest.splits[split].num_examples:
            found.append(
                Finding(
                    "warning",
                    f"Without any example in {split}: {_names(absent)}.",
                    "Add images of these classes.",
                )
            )
    lost = [row.name for row in classes if row.name not in known]
    if lost:
        found.append(Finding("warning", f"Classes without any usable image: {_names(lost)}."))
    counts = [split.class_counts for split in manifest.splits.values()]
    empty = [name for name in manifest.classes if not any(each.get(name) for each in counts)]
    if empty and manifest.label_kind != "mask":
        found.append(
            Finding(
                "note",
                f"Classes without a record, which keep their numbers: {_names(empty)}.",
                "To take them off the list of the next version: --set filter.drop_empty_classes=true.",
            )
        )
    few = [row.name for row in classes if 0 < row.splits.get("train", 0) < FEW_EXAMPLES]
    if few:
        found.append(Finding("note", f"Fewer than {FEW_EXAMPLES} training examples: {_names(few)}."))
    return found


def _balance(manifest: Manifest, classes: Sequence[ClassRow]) -> list[Finding]:
    counts = [(row.splits.get("train", 0), row.name) for row in classes if row.splits.get("train", 0)]
    if len(counts) < 2 or manifest.label_kind != "class":
        return []
    (fewest, rare), (most, frequent) = min(counts), max(counts)
    ratio = most / fewest
    if ratio < IMBALANCE_RATIO:
        return [
            Finding("good", f"Classes are balanced in train: the largest has {ratio:.1f} times the smallest.")
        ]
    return [
        Finding(
            "note",
            f"Classes are unbalanced in train: {_quoted(frequent)} has {ratio:.0f} times the examples of "
            f"{_quoted(rare)}.",
            'Train with data.balance = "uniform" to draw all classes equally often.',
        )
    ]


def _inputs(count: int) -> str:
    return "input" if count == 1 else "inputs"


def _records(count: int) -> str:
    return f"{count:,} record" if count == 1 else f"{count:,} records"


def _duplicates(count: int) -> str:
    return f"{count:,} duplicate" if count == 1 else f"{count:,} duplicates"


def _quoted(name: str) -> str:
    return f"“{name}”"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(_quoted(name) for name in names[:NAMES_SHOWN])
    return shown if len(names) <= NAMES_SHOWN else f"{shown} and {len(names) - NAMES_SHOWN:,} more"
