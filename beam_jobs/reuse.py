"""What of the version before may be reused under the settings of this run, and what had better not go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from beam_jobs.config import FilterConfig, PrepareConfig
from beam_jobs.container import ContainerChoice, choose_container
from beam_jobs.guard.verdicts import reasons_to_retry
from beam_jobs.known import Parent, Reuse
from beam_jobs.plan import Plan, num_shards
from beam_jobs.sources.folder import PASSING_REASONS
from infra.contract import Manifest
from infra.errors import ShardmillError
from infra.storage import Storage

_NOTHING = Reuse(contents=False, uris=False, shards=False)

_MANY_SHARDS = 6


def reuse_of(manifest: Manifest, config: PrepareConfig, source: str, builds: Mapping[str, str]) -> Reuse:
    """How much of a version is still valid.

    Args:
        manifest: of the version.
        config, source, builds: of this run.
    """
    before = config_of(manifest)
    if before is None or manifest.codecs != builds:
        return _NOTHING
    if before.image != config.image or _at_decoding(before.filter) != _at_decoding(config.filter):
        return _NOTHING
    container = config.shards.container
    cut = (before.seed, before.shards.num_shards, before.shards.shard_bytes)
    return Reuse(
        contents=True,
        uris=manifest.source == source,
        shards=cut == (config.seed, config.shards.num_shards, config.shards.shard_bytes)
        and container in ("auto", manifest.container),
    )


def config_of(manifest: Manifest) -> PrepareConfig | None:
    """The settings of a version; None where an unlike release wrote them."""
    try:
        return PrepareConfig.model_validate(manifest.config)
    except (ValidationError, ShardmillError):
        return None


def _at_decoding(settings: FilterConfig) -> tuple[float | None, ...]:
    """The rules that an image must be decoded for, or its header read; the others see to the listing."""
    return settings.min_width, settings.min_height, settings.max_aspect


def retried_reasons(manifest: Manifest, config: PrepareConfig) -> tuple[str, ...]:
    """Reasons for which a file could not be used that may be over now, the file unchanged."""
    return (*PASSING_REASONS, *reasons_to_retry(manifest.config, config.runner))


def container_of(
    config: PrepareConfig, plan: Plan, spool: Storage, block_digests: Sequence[str], parent: Parent | None
) -> ContainerChoice:
    """The container of the shards: as configured, as the version before has it, or as a sample says."""
    if config.shards.container == "auto" and parent is not None and parent.reuse.contents:
        return ContainerChoice(parent.version.manifest.container, f"auto: as {parent.version.ref} has it")
    return choose_container(config, plan, spool, block_digests)


def crowded_shards(manifest: Manifest) -> str | None:
    """What to tell a person where many small ingests have left many small shards; else None."""
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
