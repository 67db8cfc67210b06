"""Decide which parts of the previous version are valid under the settings of this run."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from shardmill.beam_jobs.config import FilterConfig, PrepareConfig
from shardmill.beam_jobs.execution.verdicts import reasons_to_retry
from shardmill.beam_jobs.reasons import MASK_REASONS, PASSING_REASONS, VERDICT_REASONS
from shardmill.beam_jobs.reuse.previous import Reuse
from shardmill.infra.errors import ShardmillError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.settings import STORED

_NOTHING = Reuse(contents=False, uris=False, shards=False)


def reuse_of(manifest: Manifest, config: PrepareConfig, source: str, builds: Mapping[str, str]) -> Reuse:
    """Decide how much of the previous version is still valid.

    Args:
        manifest: manifest of the previous version.
        config: settings of this run.
        source: source of this run, as the manifest would name it.
        builds: library -> version, of this run.
    """
    previous = config_of(manifest)
    if previous is None or manifest.codecs != builds:
        return _NOTHING
    if previous.image != config.image or _at_decoding(previous.filter) != _at_decoding(config.filter):
        return _NOTHING
    if _of_masks(previous) != _of_masks(config):
        return _NOTHING
    container = config.shards.container
    cut = (previous.seed, previous.shards.num_shards, previous.shards.shard_bytes)
    return Reuse(
        contents=True,
        uris=manifest.source == source,
        shards=cut == (config.seed, config.shards.num_shards, config.shards.shard_bytes)
        and container in ("auto", manifest.container),
    )


def config_of(manifest: Manifest) -> PrepareConfig | None:
    """Read the settings of a version; None if this release does not understand them."""
    try:
        # Where a version was made changes nothing in it, and its runner's settings may have had other names.
        return PrepareConfig.model_validate({**manifest.config, "runner": {}}, context=STORED)
    except (ValidationError, ShardmillError):
        return None


def _at_decoding(settings: FilterConfig) -> tuple[object, ...]:
    """Return the rules that need the bytes of an image; the other rules concern the listing."""
    return settings.min_width, settings.min_height, settings.max_aspect, settings.ai_made


def _of_masks(config: PrepareConfig) -> object:
    """Return the settings that change stored masks; None without masks."""
    source = config.source
    return source.masks.at_decoding() if source.label_kind == "mask" else None


def retried_reasons(manifest: Manifest, config: PrepareConfig) -> tuple[str, ...]:
    """Return the quarantine reasons that may have passed although the file is unchanged.

    A verdict on an image with a mask may be due to the mask, which may have changed.
    """
    has_masks = config.source.label_kind == "mask"
    verdicts = VERDICT_REASONS if has_masks else reasons_to_retry(manifest.config, config.runner)
    return (*PASSING_REASONS, *MASK_REASONS, *verdicts)
