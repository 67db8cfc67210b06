"""The facts of known files and of files that were read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.reuse.known_files import merge_facts
from shardmill.beam_jobs.schemas import PLACED_FACTS_SCHEMA


def test_facts_are_merged_in_the_order_of_the_files() -> None:
    def facts(names: list[str], shards: list[int | None], blocks: list[int | None]) -> pa.Table:
        rows = zip(names, shards, blocks, strict=True)
        return pa.Table.from_pylist(
            [{"reason": name, "shard": shard, "block": block} for name, shard, block in rows],
            PLACED_FACTS_SCHEMA,
        )

    known = np.array([False, True, False, True, True])
    of_known = facts(["b", "d", "e"], [0, 1, 0], [None] * 3)
    merged = merge_facts(known, of_known, facts(["a", "c"], [None] * 2, [0, 1]))
    assert merged["reason"].to_pylist() == ["a", "b", "c", "d", "e"]
    assert merged["block"].to_pylist() == [0, None, 1, None, None]
    assert merged["shard"].to_pylist() == [None, 0, None, 1, 0]
