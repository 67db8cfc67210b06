"""Warn about a new version that has empty splits or far too many shards."""

from __future__ import annotations

from beam_jobs.plan import num_shards
from beam_jobs.reuse.policy import config_of
from infra.format.contract import Manifest
from infra.progress import log

_MANY_SHARDS = 6


def warn_about(manifest: Manifest) -> None:
    """Warn of crowded shards, and of splits that the settings ask for and that have no example."""
    from beam_jobs.report.findings import empty_splits  # the report's template engine is loaded by now

    if crowding := crowded_shards(manifest):
        log(crowding, level="warning")
    for finding in empty_splits(manifest):
        log(f"{finding.text} {finding.remedy}", level="warning")


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
