"""Print the manifest of a version, or a view, for people, and a version as MLCommons Croissant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmill.flows.cli.output import cell, counted, print_table, say
from shardmill.infra.dataset.croissant import croissant_json, terms_of
from shardmill.infra.dataset.joined import JoinedVersion
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import UsageError
from shardmill.infra.format.contract import Manifest, QualityLimits
from shardmill.infra.format.features import Feature
from shardmill.infra.format.known_features import BOXES, WORDS
from shardmill.infra.readable import readable_bytes

_MAX_CLASSES = 40


def print_version(opened: DatasetVersion) -> None:
    """Print everything in the manifest of a version."""
    manifest = opened.manifest
    say(f"{opened.ref}  from {manifest.source}", f"published {manifest.created_at}  in {opened.storage.uri}")
    say(f"container {manifest.container}", f"images {_images_in_words(manifest)}")
    has_boxes = any(feature.name == BOXES for feature in manifest.extra_features)
    if manifest.label_kind != "class":
        say(f"labels: {'objects in images' if has_boxes else WORDS[manifest.label_kind]}")
    if edits := manifest.label_edits:
        changed, left_out = counted(edits.num_labels, "label"), counted(edits.num_left_out, "image")
        say(f"label edits: {changed} changed, {left_out} left out")
    _accounting(manifest.accounting.model_dump())
    _shards(opened)
    _print_classes(manifest.classes, {name: split.class_counts for name, split in manifest.splits.items()})
    _features(manifest.extra_features)
    _quarantine(manifest.quarantine)
    _quality(manifest.quality)
    if manifest.cross_split_duplicates:
        say(f"{counted(manifest.cross_split_duplicates, 'duplicate')} had the record in another split")
    conflicts = [[conflict.labels, conflict.uris] for conflict in manifest.label_conflicts]
    if conflicts:
        rows = [[", ".join(labels), ", ".join(uris)] for labels, uris in conflicts[:10]]
        print_table(f"Same image, several labels ({len(conflicts):,})", ["labels", "sources"], rows)
    if manifest.report:
        say(f"Report: {opened.storage.uri}/{manifest.report}")


def _images_in_words(manifest: Manifest) -> str:
    """Say which samples the stored images have, how they are encoded, and the settings that made them so."""
    image, encoding = dict(manifest.config.get("image", {})), manifest.image_encoding
    parts = [str(manifest.samples), encoding]
    if encoding not in ("jpeg", "webp"):
        image.pop("quality", None)
    image.pop("encoding", None)
    return ", ".join(parts + [f"{name} {value}" for name, value in image.items() if value not in (None, [])])


def _accounting(counts: Mapping[str, Any]) -> None:
    parts = [
        counted(counts["num_records"], "record"),
        counted(counts["num_duplicates"], "duplicate"),
        f"{counts['num_filtered']:,} filtered",
        f"{counts['num_quarantined']:,} quarantined",
    ]
    say(f"{counted(counts['num_inputs'], 'input')} = {' + '.join(parts)}")


def _shards(opened: DatasetVersion) -> None:
    rows = []
    for name, split in opened.manifest.splits.items():
        counts = [shard.num_examples for shard in opened.shards(name)]
        even = (
            f"{min(counts):,} to {max(counts):,}"
            if counts and min(counts) != max(counts)
            else cell(max(counts, default=0))
        )
        rows.append([name, split.num_examples, split.num_shards, even, readable_bytes(split.num_bytes)])
    print_table("Splits and shards", ["split", "examples", "shards", "examples a shard", "size"], rows)


def _print_classes(classes: Sequence[str], splits: Mapping[str, Mapping[str, int]]) -> None:
    """Print a table of the classes.

    Args:
        classes: their names.
        splits: split -> class name -> number of examples.
    """
    totals = {label: sum(counts.get(label, 0) for counts in splits.values()) for label in classes}
    all_examples = sum(totals.values()) or 1
    largest = max(totals.values(), default=0) or 1
    shown = sorted(totals, key=lambda label: (-totals[label], label))
    title = f"Classes ({len(shown)})"
    if len(shown) > _MAX_CLASSES:
        title = f"Classes (the {_MAX_CLASSES // 2} largest and smallest of {len(shown)})"
        shown = shown[: _MAX_CLASSES // 2] + shown[-_MAX_CLASSES // 2 :]
    rows: list[list[object]] = [
        [
            label,
            *(counts.get(label, 0) for counts in splits.values()),
            totals[label],
            f"{totals[label] / all_examples:6.1%}",
            "█" * max(1, round(24 * totals[label] / largest)) if totals[label] else "",
        ]
        for label in shown
    ]
    if rows:
        print_table(title, ["class", *splits, "all", "share", ""], rows)


def _features(features: Sequence[Feature]) -> None:
    if features:
        rows = [[feature.name, str(feature), feature.column or ""] for feature in features]
        print_table("Features", ["feature", "type", "column"], rows)


def _quarantine(reasons: Mapping[str, int]) -> None:
    if reasons:
        rows = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        print_table("Quarantined", ["reason", "inputs"], [list(row) for row in rows])


def _quality(flags: Mapping[str, QualityLimits]) -> None:
    rows = [[name, limits.in_words, limits.num_records] for name, limits in flags.items()]
    if rows:
        print_table("Quality flags", ["flag", "of pictures with", "records"], rows)
    else:
        say("quality flags: none, an earlier release made this version")


def describe(opened: DatasetVersion) -> dict[str, Any]:
    """Count the records of a view, or of several data sets; JSON-able."""
    splits = {}
    for name, whole in opened.manifest.splits.items():
        counts = opened.count_classes(name)
        splits[name] = {
            "num_examples": opened.num_examples(name),
            "of_examples": whole.num_examples,
            "class_counts": counts,
        }
    return {
        "dataset": opened.name,
        "version": opened.version,
        **opened.describe_view(),
        "reference": opened.ref,
        "num_examples": sum(split["num_examples"] for split in splits.values()),
        "splits": splits,
        "location": opened.storage.uri,
        **(_of_data_sets(opened) if isinstance(opened, JoinedVersion) else {}),
    }


def _of_data_sets(opened: JoinedVersion) -> dict[str, Any]:
    """Count the records of each data set, and say how they differ and which classes each lacks."""
    found = {}
    pairs = zip(opened.reference.parts, opened.data_sets, strict=True)
    for number, (part, one) in enumerate(pairs):
        splits = {name: one.num_examples(name) for name in opened.manifest.splits if part.has(name)}
        known = zip(opened.manifest.classes, opened.has_classes(number), strict=True)
        found[one.ref] = {"splits": splits, "missing_classes": [name for name, has in known if not has]}
    return {"by_data_set": found, "differences": opened.differences}


def print_view(opened: DatasetVersion, described: dict[str, Any]) -> None:
    """Print what ``describe`` found."""
    if opened.view is None:
        _print_data_sets(opened, described)
        return
    whole = sum(split["of_examples"] for split in described["splits"].values())
    say(
        f"{opened.name}@{opened.version} where {opened.view.query}",
        f"a view of {counted(described['num_examples'], 'record')} of {whole:,}  in {opened.storage.uri}",
    )
    rows = [
        [name, split["num_examples"], split["of_examples"]] for name, split in described["splits"].items()
    ]
    print_table("Splits", ["split", "examples", "of the version"], rows)
    _print_classes(
        opened.manifest.classes, {name: split["class_counts"] for name, split in described["splits"].items()}
    )


def _print_data_sets(opened: DatasetVersion, described: dict[str, Any]) -> None:
    of_sets = described["by_data_set"]
    say(f"{opened.ref}", f"{counted(described['num_examples'], 'record')}  in {opened.storage.uri}")
    rows = [
        [
            ref,
            *(one["splits"].get(name, 0) for name in described["splits"]),
            ", ".join(one["missing_classes"]),
        ]
        for ref, one in of_sets.items()
    ]
    print_table("Data sets", ["data set", *described["splits"], "without the classes"], rows)
    _print_classes(
        opened.manifest.classes, {name: split["class_counts"] for name, split in described["splits"].items()}
    )
    for difference in described["differences"]:
        say(f"note: {difference}")


def print_croissant(opened: DatasetVersion) -> None:
    """Print the JSON-LD on standard output.

    Raises:
        UsageError: it is a view.
    """
    if opened.view is not None:
        whole = f"{opened.name}@{opened.version}"
        raise UsageError(f"{opened.ref} is a view, and only versions are described", f"show {whole}")
    print(croissant_json(opened.manifest, terms_of(opened.storage, opened.manifest)).decode("ascii"), end="")
