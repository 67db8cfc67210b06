"""Leaks of a version, counted anew from its tables: as planning counted them, of the inputs that are left."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.plan.inputs import ACROSS_SPLITS
from infra.contract import DUPLICATE, RECORD, Leaks


def count_leaks(inputs: pa.Table, near_duplicates: pa.Table | None) -> Leaks:
    """Groups whose members are in several splits, or would be had none been dropped from train.

    Args:
        inputs: INPUTS_SCHEMA.
        near_duplicates: NEAR_DUPLICATES_SCHEMA; None where none were looked for.
    """
    dropped = pc.fill_null(pc.equal(inputs["reason"], "leak"), False)
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
    """Duplicates that the source gives another split than the record that they repeat.

    Args:
        inputs: INPUTS_SCHEMA.
    """
    return int(pc.sum(pc.equal(inputs["reason"], ACROSS_SPLITS)).as_py() or 0)


def _num_divided(members: pa.Table) -> int:
    """How many groups are in several splits; what has no split was dropped from train."""
    splits = pa.table({"group": members["group"], "split": pc.fill_null(members["split"], "train")})
    counts = splits.group_by("group").aggregate([("split", "count_distinct")])["split_count_distinct"]
    return int(pc.sum(pc.greater(counts, 1)).as_py() or 0)
