"""What deserves a look before anyone trains on a version: rules over its manifest, and words for reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from beam_jobs.report.near import NearDuplicates
from beam_jobs.report.rows import ClassRow
from infra.contract import Manifest

# A class with fewer training examples than this hardly trains and is hardly measured.
FEW_EXAMPLES = 20
# From here the majority outweighs the minority enough that "uniform" balance is worth a thought.
IMBALANCE_RATIO = 3.0
NAMES_SHOWN = 6

Level = Literal["good", "note", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about the version, and what can be done about it."""

    level: Level
    text: str
    remedy: str = ""


# reason -> (what it means, what to do); codes of infra.codecs and of the job
REASONS: dict[str, tuple[str, str]] = {
    "empty": ("The file has no content", "Copy it again from where it came, or delete it"),
    "unknown_format": (
        "The content is no image format that is known here, whatever the name says",
        "Remove it from the folder, or add its pattern to filter.ignore",
    ),
    "unsupported": (
        "A kind of image that is known, but not read",
        "The message says which kind; save it anew as PNG or as JPEG of 8 bits",
    ),
    "truncated": (
        "The image ends early: a copy or a download broke off",
        "Fetch the file again; or keep what there is of such images with image.allow_truncated",
    ),
    "corrupt": ("The image cannot be decoded", "Open it in a viewer; fetch it again or delete it"),
    "too_many_pixels": (
        "Its header announces more pixels than are safe to decode",
        "Scale it down beforehand if it is genuine",
    ),
    "bomb": (
        "Built to take far more work than its size suggests",
        "Save it anew in an editor if it is genuine, else delete it",
    ),
    "too_long": (
        "The stored image would be longer than a JPEG can hold",
        "Leave it out with filter.max_aspect, or cut it beforehand",
    ),
    "unreadable": ("The file could not be read", "Check permissions and the disk, then run again"),
    "vanished": (
        "The file was listed, but gone when it was to be read",
        "Run again once the source is quiet",
    ),
    "changed": ("The file changed while the job read it", "Run again once the source is quiet"),
    "broken_link": ("A link to something that is not there", "Restore what it leads to, or delete the link"),
    "unprocessable": (
        "A library failed on it in a way that is not foreseen",
        "Open it in a viewer and save it anew, or delete it; the message helps a report to Shardmill",
    ),
    "decoder_crashed": (
        "An image library crashed on it, as a program does that is fed what it was never tested with",
        "Open it in a viewer and save it anew, or delete it; treat it as hostile if its origin is not known",
    ),
    "decoder_hung": (
        "It was in work for longer than an image may be",
        "Raise runner.image_seconds if it is genuine and large, else save it anew or delete it",
    ),
    "decoder_out_of_memory": (
        "Decoding it takes more memory than an image may have",
        "Raise runner.image_memory_bytes if it is genuine, or scale it down beforehand",
    ),
    "too_large": (
        "Larger than image.max_bytes allows",
        "Remove it from the folder, add its pattern to filter.ignore, or raise image.max_bytes",
    ),
    "no_class": (
        "It lies in no class folder, so it has no label",
        "Move it into the folder of its class, or add its pattern to filter.ignore",
    ),
    "ignored": ("An ignore pattern names it", "filter.ignore holds the patterns"),
    "too_small": (
        "Below the smallest size that is asked for",
        "filter.min_width and filter.min_height decide",
    ),
    "aspect": ("Longer and thinner than is asked for", "filter.max_aspect decides"),
    "class": ("Its class is not among those asked for", "filter.classes decides"),
    "leak": (
        "Left out of train, since its group is in another split too",
        "Move it to the split of its group, or keep it with groups.leakage",
    ),
    "purged": (
        "Its content was purged from this dataset for good",
        "Remove the file from the source as well",
    ),
}


FILTER_REASONS = frozenset({"ignored", "too_small", "aspect", "class", "purged", "leak"})


def explain(reason: str) -> tuple[str, str]:
    """(what a reason means, what to do about it); the code itself in words where it is not known here."""
    return REASONS.get(
        reason, (reason.replace("_", " ").capitalize(), "The messages below say what was found")
    )


def find(
    manifest: Manifest,
    classes: Sequence[ClassRow],
    near: NearDuplicates | None = None,
    num_salvaged: int = 0,
) -> list[Finding]:
    """What stands out, the gravest first. Never empty: that all is well is said too."""
    found = [
        *_losses(manifest),
        *_conflicts(manifest),
        *_alike(manifest, near or NearDuplicates()),
        *_salvaged(num_salvaged),
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


def _conflicts(manifest: Manifest) -> list[Finding]:
    found = []
    if manifest.label_conflicts:
        count = len(manifest.label_conflicts)
        found.append(
            Finding(
                "warning",
                f"{count:,} {'image has' if count == 1 else 'images have'} the same bytes under "
                "different labels.",
                "One of the labels is wrong. Shown below; correct the source and prepare again.",
            )
        )
    if manifest.cross_split_duplicates:
        found.append(
            Finding(
                "warning",
                f"Duplicates across given splits: {manifest.cross_split_duplicates:,}.",
                "Each is kept once only, so no split leaks into another; the given splits deserve a look.",
            )
        )
    return found


def _alike(manifest: Manifest, near: NearDuplicates) -> list[Finding]:
    found = []
    leaks, dropped = manifest.leaks, manifest.leaks.dropped_from_train
    divided = leaks.near_duplicate_groups + leaks.key_groups
    if divided:
        found.append(
            Finding(
                "note" if dropped else "warning",
                f"{divided:,} {'group has' if divided == 1 else 'groups have'} members in several splits"
                + (f"; {_records(dropped)} of train left out for it." if dropped else "."),
                "Shown below." if dropped else 'Shown below; groups.leakage = "drop-from-train" mends it.',
            )
        )
    if near.num_conflicts:
        count = near.num_conflicts
        found.append(
            Finding(
                "warning",
                f"{count:,} {'group' if count == 1 else 'groups'} of images that look the same "
                f"{'stands' if count == 1 else 'stand'} under different labels.",
                "One of the labels may be wrong. Shown below; correct the source and prepare again.",
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
            f"{_records(count)} {made} salvaged from images that end early; what they lack is grey.",
            "image.allow_truncated decides; the index has them as salvaged.",
        )
    ]


def _classes(manifest: Manifest, classes: Sequence[ClassRow]) -> list[Finding]:
    found = []
    known = set(manifest.classes)
    for split in manifest.splits:
        absent = [row.name for row in classes if row.name in known and not row.splits.get(split)]
        if absent:
            found.append(
                Finding(
                    "warning",
                    f"Without any example in {split}: {_names(absent)}.",
                    "Add images of these classes.",
                )
            )
    lost = [row.name for row in classes if row.name not in known]
    if lost:
        found.append(Finding("warning", f"Classes of which no image was usable: {_names(lost)}."))
    few = [row.name for row in classes if 0 < row.splits.get("train", 0) < FEW_EXAMPLES]
    if few:
        found.append(Finding("note", f"Fewer than {FEW_EXAMPLES} training examples: {_names(few)}."))
    return found


def _balance(manifest: Manifest, classes: Sequence[ClassRow]) -> list[Finding]:
    counts = [(row.splits.get("train", 0), row.name) for row in classes if row.splits.get("train", 0)]
    if len(counts) < 2:
        return []
    (fewest, rare), (most, frequent) = min(counts), max(counts)
    ratio = most / fewest
    if ratio < IMBALANCE_RATIO:
        return [
            Finding("good", f"Classes are even in train: the largest has {ratio:.1f} times the smallest.")
        ]
    return [
        Finding(
            "note",
            f"Classes are uneven in train: {_quoted(frequent)} has {ratio:.0f} times the examples of "
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
