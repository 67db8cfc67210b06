"""The memory of the search for near-duplicates, foreseen before any image is read."""

from __future__ import annotations

from shardmill.beam_jobs.config import GroupsConfig

# Of the process that plans, measured with tests.benchmarks.scale.plan.
BYTES_OF_A_RECORD = 2_190


def too_little_memory(num_files: int, config: GroupsConfig, free_bytes: int) -> str | None:
    """Return a warning if the search for near-duplicates is likely to need more memory than there is.

    Args:
        num_files: files to read and known files.
        config: whether near-duplicates are looked for.
        free_bytes: memory that the process may take.
    """
    needed = num_files * BYTES_OF_A_RECORD
    if not config.near_duplicates or needed <= free_bytes:
        return None
    return (
        f"the search for near-duplicates among {num_files:,} files needs about {needed / 2**30:.1f} GiB of "
        f"memory in one process, and {free_bytes / 2**30:.1f} GiB are free here; set "
        "groups.near_duplicates=false, or plan on a machine with more memory"
    )
