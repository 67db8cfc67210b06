"""Hash ranks: pseudo-random numbers, the same on every machine, that order the records for each purpose."""

from __future__ import annotations

import numpy as np

from shardmill.beam_jobs.tables.ids import UInt64
from shardmill.infra.splitmix import splitmix64

# Purposes of hash ranks: each has an order of its own.
SPLIT, SHARD, PLACE, SAMPLE = range(4)

_MASK = (1 << 64) - 1


def hash_ranks(ids: UInt64, seed: int, purpose: int) -> UInt64:
    """Return a number for each record that decides its place for one purpose: uint64 [N].

    Different ids never share a number. Another seed or purpose gives an unrelated order.
    """
    key = splitmix64(np.array([(seed * 8 + purpose) & _MASK], np.uint64))[0]
    ranks = ids ^ key
    return splitmix64(ranks, out=ranks)  # in place, since columns of a plan are long
