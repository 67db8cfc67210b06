"""Positions of stored images in the spool."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.schemas import PLACED_FACTS_SCHEMA, Status
from shardmill.beam_jobs.tables.features import features_of, with_features


def place_facts(facts: pa.Table, blocks: npt.NDArray[np.int32]) -> pa.Table:
    """Add the block and shard of each stored image to the facts of files.

    Args:
        facts: FACTS_SCHEMA and columns of features.
        blocks: int32 [rows], number of the block of each.

    Returns:
        PLACED_FACTS_SCHEMA and columns of features. The shards of STORED_BEFORE are still null: see
        ``fill_in_stored_before``.
    """
    status = facts["status"].to_numpy()
    columns = {name: facts[name] for name in facts.column_names}
    columns["block"] = pa.array(blocks, mask=status != Status.STORED)
    columns["shard"] = pa.nulls(facts.num_rows, pa.int32())
    schema = with_features(PLACED_FACTS_SCHEMA, features_of(facts))
    return pa.table(columns).select(schema.names).cast(schema)
