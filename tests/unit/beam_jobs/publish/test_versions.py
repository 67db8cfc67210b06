"""Versions with far too many shards are reported."""

from __future__ import annotations

from typing import Any

import pytest

from shardmill.beam_jobs.publish.versions import crowded_shards
from shardmill.infra.format.contract import SplitSummary
from tests.samples.datasets.manifests import empty_manifest


@pytest.mark.parametrize(
    ("num_shards", "config", "says"),
    [(7, {}, None), (8, {}, "8 shards where 1 would do"), (8, {"shards": {"num_shards": 4}}, None)],
)
def test_many_small_shards_are_told(num_shards: int, config: dict[str, Any], says: str | None) -> None:
    split = SplitSummary(num_examples=100, num_shards=num_shards, num_bytes=1000, class_counts={})
    found = empty_manifest(**config).model_copy(update={"splits": {"train": split}})
    told = crowded_shards(found)
    assert told is None if says is None else says in str(told)
