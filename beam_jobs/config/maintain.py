"""The settings of the maintenance of a dataset."""

from __future__ import annotations

from pydantic import Field

from shardmill.infra.settings import Settings


class MaintainConfig(Settings):
    """Maintenance of a dataset, in this order: compaction, retention, removal of unused files."""

    compact: bool = Field(True, description="Publish the newest version again in few shards, if it needs it")
    compact_after: int = Field(
        4, ge=2, le=1000, description="Compact when the shards come from so many ingests"
    )
    keep_last: int | None = Field(None, ge=1, le=100_000, description="Keep so many of the newest versions")
    keep_days: float | None = Field(
        None,
        ge=0,
        le=36_500,
        description="Keep younger versions",
    )
    keep_trained: bool = Field(
        True, description="Keep versions that a run of the runs folder or an alias used"
    )
    remove_garbage: bool = Field(True, description="Remove files that no version needs")
    abandoned_days: float = Field(
        7.0,
        ge=0.01,
        le=3650,
        description="Remove older unfinished work",
    )
    signing_key: str | None = Field(
        None,
        description="File with the private key that signs the compacted version (extra `signing`)",
    )
    dry_run: bool = Field(False, description="Only report")
