"""Count the leaks of a version again, from the tables of the inputs that are left after a purge."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.schemas import LEAK, SAME_BYTES_ACROSS_SPLITS
from shardmill.infra.format.contract import DUPLICATE, RECORD, Leaks


def count_leaks(inputs: pa.Table, near_duplicates: pa.Table | None) -> Leaks:
    """Count the groups that are in several splits, or would if no record had been dropped from train.

    Args:
        inputs: INPUTS_SCHEMA.
        near_duplicates: NEAR_DUPLICATES_SCHEMA; None if none were looked for.
    """
    dropped = pc.fill_null(pc.equal(inputs["reason"], LEAK), False)
    placed = pc.or_(pc.is_in(inputs["outcome"], pa.array([RECORD, DUPLICATE])), dropped)
    members = pa.table(
        {"group": inputs["group"], "split": pc.if_else(dropped, "train", inputs["split"])}
    ).filter(pc.and_(placed, pc.is_valid(inputs["group"])))
    return Leaks(
        near_duplicate_groups=0 if near_duplicates is None else _num_divided(near_duplicates),
        key_groups=_num_divided(members),
        dropped_from_train=len(inputs["sha256"].filter(dropped).unique()),
    )


def count_crossing(inputs: pa.Table) -> int:
    """Count the duplicates that the source gives another split than the record that they repeat.

    Args:
        inputs: INPUTS_SCHEMA.
    """
    return int(pc.sum(pc.equal(inputs["reason"], SAME_BYTES_ACROSS_SPLITS)).as_py() or 0)


def _num_divided(members: pa.Table) -> int:
    """Count the groups in several splits; a member without a split was dropped from train."""
    splits = pa.table({"group": members["group"], "split": pc.fill_null(members["split"], "train")})
    counts = splits.group_by("group").aggregate([("split", "count_distinct")])["split_count_distinct"]
    return int(pc.sum(pc.greater(counts, 1)).as_py() or 0)
