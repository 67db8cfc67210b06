"""The plan of a version: from the facts of all files to duplicates, groups, splits and shards.

    steps         the steps of a plan, in order
    similarity/   exact duplicates, near-duplicates, groups by key
    splits        which record goes to which split; splits_by_kind for other labels than one class
    leaks         groups that are in several splits
    shards        which record goes to which shard, and where in it
    interface     what a plan builds on, and the plan as later stages see it
    rows          the rows of all inputs, and of the records in the order in which they are stored
    statistics    figures of the images of each split
    quality       limits of the quality flags, and the files that they leave out

Everything here is a pure, vectorised function over Arrow tables: no Beam, no files. The result depends on the
rows alone, not on the order in which blocks were finished, nor on the number of workers.
"""

from shardmill.beam_jobs.plan.interface import (
    AnyPlan,
    OutcomeRows,
    PlannedVersion,
    PlanSummary,
    PreviousRecords,
    RecordRows,
)
from shardmill.beam_jobs.plan.shards import RECORD_OVERHEAD_BYTES, HeldShards, PlannedShard, num_shards
from shardmill.beam_jobs.plan.steps import Plan, plan_version

__all__ = [
    "RECORD_OVERHEAD_BYTES",
    "AnyPlan",
    "HeldShards",
    "OutcomeRows",
    "Plan",
    "PlanSummary",
    "PlannedShard",
    "PlannedVersion",
    "PreviousRecords",
    "RecordRows",
    "num_shards",
    "plan_version",
]
