"""diff: show what differs between two versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from shardmill.beam_jobs.summaries import setting_lines
from shardmill.flows.cli import options, output
from shardmill.flows.cli.folders import catalog_at
from shardmill.infra.dataset.drift.figures import Drift, DriftLimits
from shardmill.infra.errors import CorruptDataError, NotFoundError, ShardmillError
from shardmill.infra.html.page import differing_settings
from shardmill.infra.readable import readable_bytes
from shardmill.infra.settings import STORED

if TYPE_CHECKING:
    from shardmill.infra.dataset.catalog import Catalog
    from shardmill.infra.dataset.compare import Change, Changes, VersionDiff
    from shardmill.infra.dataset.version import DatasetVersion

_SHOWN = {
    "inputs_added": ("input", "added"),
    "inputs_removed": ("input", "removed"),
    "inputs_changed": ("input", "with other content"),
    "outcomes_changed": ("input", "that came out another way"),
    "records_added": ("record", "added"),
    "records_removed": ("record", "removed"),
    "relabelled": ("record", "with another label"),
    "features_changed": ("record", "with another mask, other boxes or other features"),
    "moved": ("record", "in another split"),
}
_CLASSES_SHOWN = 20
_FIGURES_SHOWN = 8

After = Annotated[
    str | None,
    typer.Argument(metavar="[NAME@VERSION]", help="The later version [default: the newest of the dataset]"),
]


def diff(
    before: Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="The earlier version")],
    after: After = None,
    root: options.Root = None,
    json_output: options.Json = False,
) -> None:
    """Show the differences of two versions of a dataset.

    Inputs, records, labels, splits, classes, drift of the images. A name alone compares the newest version
    with the one before it.

    Examples:
      shardmill diff photos
      shardmill diff photos@1 photos@3 --json
    """
    from shardmill.infra.dataset.compare import diff as compare

    catalog = catalog_at(root)
    old, new = map(catalog.open, _two_versions(catalog, before, after))
    found, drift = compare(old, new), _drift(old, new)
    changed = _settings(old, new)
    if json_output:
        more = {"settings_changed": changed, "drift": drift.to_json() if drift else None}
        output.print_json(found.to_json() | more)
    else:
        _show(found, changed)
        _show_drift(drift)


def _settings(old: DatasetVersion, new: DatasetVersion) -> dict[str, tuple[str, ...]]:
    """Return the settings that change the written files and differ, with their values in both versions."""
    from shardmill.beam_jobs.config import PrepareConfig

    try:
        config = PrepareConfig.model_validate(new.manifest.config, context=STORED)
        return config.changes_since(old.manifest.config)
    except (ValidationError, ShardmillError):  # written by a release with other settings
        return differing_settings(old.manifest.config, new.manifest.config)


def _drift(old: DatasetVersion, new: DatasetVersion) -> Drift | None:
    """The drift between two versions; None if their indexes cannot be read."""
    from shardmill.infra.dataset.drift.measuring import measure

    try:
        return measure(old, new, _limits(new))
    except CorruptDataError as error:
        output.note(f"the drift of the images is not known: {error.message}")
        return None


def _limits(version: DatasetVersion) -> DriftLimits:
    """The limits of the version's configuration; the usual ones if it has none that this release knows."""
    kept = version.manifest.config.get("drift", {})
    try:
        return DriftLimits.model_validate(
            {name: kept[name] for name in DriftLimits.model_fields if name in kept}
        )
    except ValidationError:
        return DriftLimits()


def _two_versions(catalog: Catalog, before: str, after: str | None) -> tuple[str, str]:
    """The two references to compare."""
    name, _, number = before.partition("@")
    if after is not None:
        return before, after
    if number not in ("", "latest"):
        return before, name
    newest = catalog.open(before)
    earlier = [version for version in catalog.versions(name) if version < newest.version]
    if not earlier:
        raise NotFoundError(f"{newest.ref} has no version before it", "prepare the dataset again first")
    parent = newest.manifest.parent
    return f"{name}@{parent if parent in earlier else earlier[-1]}", newest.ref


def _show(found: VersionDiff, changed: dict[str, tuple[str, ...]]) -> None:
    output.say(f"From {found.before} to {found.after}:")
    if changed:
        lines = (f"    {line}" for line in setting_lines(changed))
        output.say(f"  {output.counted(len(changed), 'setting')} changed", *lines)
    if found.is_empty:
        stored = ", stored by other settings" if changed else ""
        output.say(f"  the same inputs and the same records{stored}")
    for name, changes in found.changes().items():
        if changes.count:
            noun, what = _SHOWN[name]
            output.say(f"  {output.counted(changes.count, noun)} {what}", *_lines(changes))
    counts_changed = {name: counts for name, counts in found.class_counts.items() if counts[0] != counts[1]}
    if counts_changed:
        most = sorted(counts_changed.items(), key=lambda item: (-abs(item[1][1] - item[1][0]), item[0]))
        rows = [[name, old, new, f"{new - old:+,}"] for name, (old, new) in most[:_CLASSES_SHOWN]]
        output.print_table("", ["class", "before", "after", "change"], rows)
    output.say(
        f"  {output.counted(found.num_shards_inherited, 'shard')} inherited, "
        f"{found.num_shards_written:,} written ({readable_bytes(found.num_bytes_written)})"
    )


def _show_drift(drift: Drift | None) -> None:
    exceeded = drift.exceeded if drift else []
    if exceeded:
        output.say(f"  {output.counted(len(exceeded), 'figure')} of drift beyond the limits")
    figures = drift.farthest(_FIGURES_SHOWN) if drift else []
    if figures:
        rows = [
            [
                f"{'! ' if figure.is_exceeded else ''}{figure.subject}",
                figure.before,
                figure.after,
                f"{figure.distance:.2f}",
                f"{figure.chance:.2f}",
                f"{figure.limit:.2f}",
            ]
            for figure in figures
        ]
        output.print_table("", ["drift", "before", "after", "distance", "by chance", "limit"], rows)


def _lines(changes: Changes) -> list[str]:
    lines = [
        f"    {example.uri}" + (f"  {_values(example)}" if example.before or example.feature else "")
        for example in changes.examples
    ]
    rest = changes.count - len(changes.examples)
    return lines + ([f"    and {rest:,} more"] if rest else [])


def _values(change: Change) -> str:
    feature = f"{change.feature}: " if change.feature else ""
    return f"{feature}{_short(change.before)} -> {_short(change.after)}"


def _short(value: str | None) -> str:
    return "none" if value is None else value[:12] + "…" if len(value) == 64 else value
