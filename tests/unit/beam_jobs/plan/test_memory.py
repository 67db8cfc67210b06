"""The warning before a search for near-duplicates that memory is too small for."""

from __future__ import annotations

import pytest

from shardmill.beam_jobs.config import GroupsConfig
from shardmill.beam_jobs.plan.similarity.memory import too_little_memory

GIB = 1 << 30


@pytest.mark.parametrize(
    ("num_files", "is_searched", "is_warned"),
    [(10_000_000, True, True), (10_000_000, False, False), (1_000_000, True, False), (0, True, False)],
)
def test_only_a_search_that_needs_more_than_there_is_is_warned_of(
    num_files: int, is_searched: bool, is_warned: bool
) -> None:
    config = GroupsConfig.model_validate({"near_duplicates": is_searched})
    warning = too_little_memory(num_files, config, free_bytes=16 * GIB)
    assert (warning is not None) is is_warned
    if warning is not None:
        for said in ("10,000,000 files", "20.4 GiB", "16.0 GiB", "groups.near_duplicates=false"):
            assert said in warning
