"""Choose between planning in memory and by ranges, by the memory that a plan needs and that is free."""

from __future__ import annotations

import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.execution.runners import num_processes
from shardmill.infra.errors import ConfigError
from shardmill.infra.storage.filesystem import Storage

# Measured with tests.benchmarks.scale.plan, in bytes a file: the facts in memory, and the listing in so many
# forms; the search for near-duplicates; the tables of a range that a process plans.
_FACTS_BYTES, _LISTINGS = 450, 3
_NEAR_BYTES = 950
_RANGE_BYTES = 1_550
_SHARE = 0.5  # share of the free memory that a plan may take
_FILES_OF_A_RANGE = 1_000_000
_MOST_RANGES = 4096
_FOLDER = "ranges"


def num_ranges(config: PrepareConfig, listing: pa.Table, free_bytes: int, begun: int | None = None) -> int:
    """Return in how many ranges to plan a version; 1 to plan it in one process.

    Args:
        config: settings of the plan; ``runner.plan_ranges`` wins over everything else.
        listing: LISTING_SCHEMA and columns of features.
        free_bytes: memory that processes may take.
        begun: ranges of a plan that was interrupted, which continues; None if there is none.

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
    if wanted or obstacle is not None:
        return wanted or 1
    if begun is not None:
        return begun
    may_take = _SHARE * free_bytes
    if _plan_bytes(listing) + _near_bytes(config, listing) <= may_take:
        return 1
    files = min(_FILES_OF_A_RANGE, may_take / num_processes(config.runner) / _RANGE_BYTES)
    return max(2, min(_MOST_RANGES, -int(-listing.num_rows // max(1, files))))


def begun_ranges(spool: Storage) -> int | None:
    """Return the ranges of the plan that was begun in the spool of a run; None if there is none."""
    found = [int(name.rpartition("-")[2]) for name in spool.list_folders(_FOLDER)]
    return max(found, default=None)


def ranges_folder(digest: str, ranges: int) -> str:
    """Return the folder in the spool for a plan by ranges, named by the digest of its input."""
    return f"{_FOLDER}/{digest}-{ranges}"


def too_little_memory(config: PrepareConfig, listing: pa.Table, free_bytes: int) -> str | None:
    """Return a warning if the plan is likely to need more memory than there is, before any image is read.

    Args:
        config: how a version is planned.
        listing: LISTING_SCHEMA and columns of features.
        free_bytes: memory that processes may take.
    """
    near = _near_bytes(config, listing)
    plan = _plan_bytes(listing) if num_ranges(config, listing, free_bytes) == 1 else 0
    if near + plan <= free_bytes:
        return None
    settings = ["groups.near_duplicates=false"] * (near > 0) + ["runner.plan_ranges=0"] * (
        config.runner.plan_ranges == 1 and _obstacle(config) is None
    )
    needs = " and ".join(["the search for near-duplicates"] * (near > 0) + ["the plan"] * (plan > 0))
    return (
        f"planning {listing.num_rows:,} files needs about {(near + plan) / 2**30:.1f} GiB of memory in one "
        f"process, for {needs}, and {free_bytes / 2**30:.1f} GiB are free here; "
        + "".join(f"set {setting}, or " for setting in settings)
        + "prepare on a machine with more memory"
    )


def _plan_bytes(listing: pa.Table) -> int:
    return int(listing.num_rows * _FACTS_BYTES + listing.nbytes * _LISTINGS)


def _near_bytes(config: PrepareConfig, listing: pa.Table) -> int:
    return listing.num_rows * _NEAR_BYTES if config.groups.near_duplicates else 0


def _obstacle(config: PrepareConfig) -> str | None:
    """Return the part of the settings that needs a plan in one process; None if there is none."""
    if config.source.label_kind not in ("class", "none"):
        return f"labels of kind {config.source.label_kind!r}"
    if config.groups.embeddings.file is not None:
        return "groups.embeddings"
    return None
