"""The planned records: what is known of each, in the order in which it is stored."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_jobs.blocks import FACTS_SCHEMA
from beam_jobs.plan.hashing import digest_bytes, hex_text
from infra.contract import IMAGE_COLUMNS

_STORED_FACTS = ("offset_bytes", *(field.name for field in IMAGE_COLUMNS))

# A record batch of it, in stored order, is a shard.
PLAN_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("sha256", pa.binary(32)),
        ("label", pa.int32()),
        ("source_uri", pa.string()),
        ("source_bytes", pa.int64()),
        ("group", pa.string()),
        ("block", pa.int32()),  # number of the block whose spool file holds the stored form
        *((name, FACTS_SCHEMA.field(name).type) for name in _STORED_FACTS),
    ]
)


def planned_records(
    listing: pa.Table,
    facts: pa.Table,
    rows: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int64],
    blocks: npt.NDArray[np.int32],
) -> pa.Table:
    """PLAN_SCHEMA, of records in stored order."""
    sources = listing.select(["uri", "size_bytes", "group"]).take(rows)
    columns = {
        "id": hex_text(digest_bytes(facts["sha256"])[:, :8]),
        "sha256": facts["sha256"],
        "label": pa.array(labels.astype(np.int32)),
        "source_uri": sources["uri"],
        "source_bytes": sources["size_bytes"],
        "group": sources["group"],
        "block": pa.array(blocks),
    }
    return pa.table(columns | {name: facts[name] for name in _STORED_FACTS}).cast(PLAN_SCHEMA)
