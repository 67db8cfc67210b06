"""Positions of stored images in the spool."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_jobs.schemas import FACTS_SCHEMA, PLACED_FACTS_SCHEMA, Status


def place_facts(facts: pa.Table, blocks: npt.NDArray[np.int32]) -> pa.Table:
    """Add the block and shard of each stored image to the facts of files.

    Args:
        facts: FACTS_SCHEMA.
        blocks: int32 [rows], number of the block of each.

    Returns:
        PLACED_FACTS_SCHEMA. The shards of STORED_BEFORE are still null: see ``fill_in_stored_before``.
    """
    status = facts["status"].to_numpy()
    columns = {name: facts[name] for name in FACTS_SCHEMA.names}
    columns["block"] = pa.array(blocks, mask=status != Status.STORED)
    columns["shard"] = pa.nulls(facts.num_rows, pa.int32())
    return pa.table(columns, schema=PLACED_FACTS_SCHEMA)
