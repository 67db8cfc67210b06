"""The number of ranges of a plan."""

from __future__ import annotations

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.infra.errors import ConfigError

FILES_IN_ONE_PROCESS = 5_000_000
FILES_OF_A_RANGE = 1_000_000


def num_ranges(config: PrepareConfig, num_files: int) -> int:
    """Return in how many ranges to plan a version; 1 to plan it in one process.

    Raises:
        ConfigError: ranges are asked for, and the settings of the plan need one process.
    """
    wanted = config.runner.plan_ranges
    obstacle = _obstacle(config)
    if wanted > 1 and obstacle is not None:
        raise ConfigError(
            f"runner.plan_ranges = {wanted}, and {obstacle} can only be planned in one process",
            "leave runner.plan_ranges out, or set it to 1",
        )
    if wanted or obstacle is not None or num_files <= FILES_IN_ONE_PROCESS:
        return wanted or 1
    return -(-num_files // FILES_OF_A_RANGE)


def _obstacle(config: PrepareConfig) -> str | None:
    """Return the part of the settings that needs a plan in one process; None if there is none."""
    if config.source.label_kind not in ("class", "none"):
        return f"labels of kind {config.source.label_kind!r}"
    if config.groups.embeddings.file is not None:
        return "groups.embeddings"
    return None
