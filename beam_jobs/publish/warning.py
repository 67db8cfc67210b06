"""Warn about a new version that has empty splits or far too many shards, or lacks the label edits before."""

from __future__ import annotations

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.plan import num_shards
from shardmill.beam_jobs.reuse.previous import config_of
from shardmill.infra.format.contract import Manifest
from shardmill.infra.progress import log

_MANY_SHARDS = 6


def warn_about(manifest: Manifest) -> None:
    """Warn of crowded shards, of splits without an example, and of classes that train lacks."""
    # The report's template engine is loaded by now.
    from shardmill.beam_jobs.report.findings import empty_splits, untrained_classes

    if crowding := crowded_shards(manifest):
        log(crowding, level="warning")
    for finding in (*empty_splits(manifest), *untrained_classes(manifest)):
        log(f"{finding.text} {finding.remedy}", level="warning")


def without_label_edits(before: Manifest | None, source_uri: str, config: PrepareConfig) -> str | None:
    """Return a warning if the version before has label edits and this run none; None otherwise.

    Args:
        before: the manifest of the newest version.
        source_uri: place of the source of this run, as manifests name it.
        config: settings of this run.
    """
    if before is None or before.label_edits is None or before.source != source_uri:
        return None
    if config.source.label_edits is not None:
        return None
    file = before.config.get("source", {}).get("label_edits")
    return (
        f"{before.dataset}@{before.version} has label edits, and this run has none: its labels become those "
        f"of the source again. To keep them: --set source.label_edits={file}"
    )


def crowded_shards(manifest: Manifest) -> str | None:
    """Return a warning about a version with far more shards than it needs; None for others."""
    config = config_of(manifest)
    if config is None:
        return None
    for name, split in manifest.splits.items():
        needed = num_shards(split.num_examples, split.num_bytes, config.shards)
        if split.num_shards >= 2 * needed + _MANY_SHARDS:
            return (
                f"{manifest.dataset}@{manifest.version} keeps {name} in {split.num_shards:,} shards where "
                f"{needed:,} would do: `shardmill compact {manifest.dataset}` writes them anew, balanced"
            )
    return None
