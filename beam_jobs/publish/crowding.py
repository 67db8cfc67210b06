"""Advice on versions that many small ingests have left in many small shards."""

from __future__ import annotations

from beam_jobs.plan import num_shards
from beam_jobs.reuse.policy import config_of
from infra.format.contract import Manifest

_MANY_SHARDS = 6


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
