"""Findings to check before training on a version, and the meaning and remedy of each reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from beam_jobs.report.figures.inputs import ClassRow
from beam_jobs.report.figures.near_duplicates import NearDuplicateGroups
from infra.format.contract import Manifest

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


# reason -> (meaning, remedy); the same words stand in docs/recover-from-failures.md
REASONS: dict[str, tuple[str, str]] = {
    "empty": ("The file has no content", "Copy it from the original again, or delete it"),
    "unknown_format": (
        "The content is not of a known image format, whatever the file name says",
        "Remove it from the folder, or add its pattern to filter.ignore",
    ),
    "unsupported": (
        "The image format is known, but this variant is not supported",
        "See the message; save the image as PNG or 8-bit JPEG",
    ),
    "truncated": (
        "The image ends early, for example after an incomplete copy or download",
        "Fetch the file again; or set image.allow_truncated to keep such images",
    ),
    "corrupt": ("The image cannot be decoded", "Open it in a viewer; fetch it again, or delete it"),
    "too_many_pixels": (
        "Its header declares more pixels than image.max_pixels allows",
        "If the image is genuine, scale it down before you prepare",
    ),
    "bomb": (
        "Decoding it would take far more work than its size suggests",
        "If the image is genuine, save it again in an editor; otherwise delete it",
    ),
    "too_long": (
        "The stored image would be longer than its format allows",
        "Leave it out with filter.max_aspect, or crop it before you prepare",
    ),
    "unreadable": ("The file could not be read", "Check permissions and the disk, then run again"),
    "vanished": (
        "The file was listed, but no longer existed when it was read",
        "Run again when nothing changes the source any more",
    ),
    "changed": (
        "The file changed while the job read it",
        "Run again when nothing changes the source any more",
    ),
    "broken_link": ("A symbolic link whose target does not exist", "Restore the target, or delete the link"),
    "unprocessable": (
        "A library failed on it with an unexpected error",
        "Open it in a viewer and save it again, or delete it; please report the message to Shardmill",
    ),
    "decoder_crashed": (
        "An image library crashed while decoding it",
        "Save it again in an editor, or delete it; treat it as hostile if you do not know its origin",
    ),
    "decoder_hung": (
        "Decoding it took longer than runner.image_seconds allows",
        "If the image is genuine and large, raise runner.image_seconds; otherwise save it again or delete it",
    ),
    "decoder_out_of_memory": (
        "Decoding it needs more memory than runner.image_memory_bytes allows",
        "If the image is genuine, raise runner.image_memory_bytes or scale it down before you prepare",
    ),
    "unlisted_folder": (
        "The folder cannot be listed, so all of its files are missing",
        "Make the folder readable and run again, or add it to filter.ignore",
    ),
    "path_too_long": (
        "Its path is longer than the system allows",
        "Shorten the folder names, or move the source nearer to the root of the disk",
    ),
    "too_large": (
        "The file is larger than image.max_bytes allows",
        "Remove it from the folder, add its pattern to filter.ignore, or raise image.max_bytes",
    ),
    "no_class": (
        "It is not in a class folder, so it has no label",
        "Move it into the folder of its class, or add its pattern to filter.ignore",
    ),
    "broken_row": (
        "The row of the table cannot be read",
        "See the message; correct the row: count its delimiters and quotes",
    ),
    "bad_path": (
        "The row of the table names no file within the source",
        "Correct the path: relative to the source, without .., and never empty",
    ),
    "missing_file": (
        "The row of the table names a file that is not there",
        "Add the file or remove the row; if all are missing, look at source.table.prefix and path_column",
    ),
    "several_files": (
        "The row of the table names a file without its ending, and several files match",
        "Write the whole file name into the row",
    ),
    "no_label": (
        "Its row of the table has no label",
        "Fill in the label, or remove the row",
    ),
    "unknown_split": (
        "Its row of the table names a split that is neither train, validation nor test",
        "Correct the split, or leave it empty to have it chosen",
    ),
    "contradicting_rows": (
        "Several rows of the table name the same file with different labels, splits or groups",
        "Keep the row that is right, and remove the others",
    ),
    "ignored": ("A pattern of filter.ignore matches it", "Change filter.ignore to include it"),
    "special_file": (
        "A pipe, a socket or a device, not a file",
        "Nothing to do; add its pattern to filter.ignore if it is expected",
    ),
    "table": (
        "It is the table that names the images",
        "Nothing to do",
    ),
    "not_in_table": (
        "No row of the table names it",
        "Add a row for it to include it",
    ),
    "dropped_label": (
        "source.table.drop_labels names its label",
        "Remove the label from source.table.drop_labels to include it",
    ),
    "repeated_row": (
        "The row of the table says the same as an earlier row",
        "Nothing to do; remove the row if you like",
    ),
    "too_small": (
        "It is smaller than filter.min_width or filter.min_height",
        "Lower these settings to include it",
    ),
    "aspect": ("Its aspect ratio is larger than filter.max_aspect", "Raise this setting to include it"),
    "class": ("filter.classes does not name its class", "Add the class to filter.classes to include it"),
    "leak": (
        "Left out of train because its group is also in another split",
        "Move it to the split of its group, or set groups.leakage to keep",
    ),
    "purged": (
        "Its content was purged from this dataset",
        "Remove the file from the source too",
    ),
}


def explain(reason: str) -> tuple[str, str]:
    """Return (meaning, remedy) of a reason; for an unknown reason, the reason itself as words."""
    return REASONS.get(reason, (reason.replace("_", " ").capitalize(), "See the messages below"))


def find(
    manifest: Manifest,
    classes: Sequence[ClassRow],
    near: NearDuplicateGroups | None = None,
    num_salvaged: int = 0,
) -> list[Finding]:
    """Return the findings, the most serious first; never empty."""
    found = [
        *_losses(manifest),
        *_conflicts(manifest),
        *_alike(manifest, near or NearDuplicateGroups()),
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
    if near.num_conflicts:
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
        found.append(Finding("warning", f"Classes without any usable image: {_names(lost)}."))
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
