"""The plan of a version: what is known of all files, to duplicates, groups, splits, shards and places.

Pure functions over Arrow tables, vectorised: no Beam, no files. The result depends on the rows alone, not on
the order in which blocks were finished, nor on the number of workers.
"""

from beam_jobs.plan.earlier import Earlier
from beam_jobs.plan.planning import Plan, plan_version
from beam_jobs.plan.records import PLAN_SCHEMA
from beam_jobs.plan.shards import RECORD_OVERHEAD_BYTES, HeldShards, PlannedShard, num_shards

__all__ = [
    "PLAN_SCHEMA",
    "RECORD_OVERHEAD_BYTES",
    "Earlier",
    "HeldShards",
    "Plan",
    "PlannedShard",
    "num_shards",
    "plan_version",
]
