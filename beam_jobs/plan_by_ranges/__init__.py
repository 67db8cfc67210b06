"""Planning beyond memory: the plan of ``shardmill.beam_jobs.plan``, by ranges, with tables in the spool.

One process holds only small data: counts of classes, and the records that are in groups. Tasks do the rest,
as items of a Beam job::

    task            a range of     does                                                sends
    --------------  -------------  --------------------------------------------------  ---------------
    GatherFiles     the listing    joins listing and facts (with filter.quality)
    SendFiles       the listing    joins them (without), leaves out by quality         files by hash
    FindDuplicates  hashes         makes records of files, counts them by class        members by key
    GroupByKey      keys           groups records
    (this process)                 near-duplicates, units, leaks, places in the splits
    AssignSplits    hashes         gives each record its split                         fates by file
                                                                                       records by hash
    DealRecords     other hashes   counts the turns in which records go to shards      turns by file
    (this process)                 number of shards of each split
    WriteInputs     the listing    rows of the inputs                                  records by shard
    OrderShards     shards         rows of the records, in stored order

    tables          the tables, and the exchange of rows between ranges
    gathering       the facts of each range of files
    files hashes splitting shards  the tasks, and the decisions made from counts
    choice          in memory or by ranges, and how many ranges
    planning        the steps in order

A table that is there is complete, so a plan that was interrupted continues. Rows in exchange are removed once
all ranges have received them.
"""

from shardmill.beam_jobs.plan_by_ranges.choice import begun_ranges, num_ranges, too_little_memory
from shardmill.beam_jobs.plan_by_ranges.gathering import (
    GatherFacts,
    cut_files,
    gather_by_ranges,
    gathering_digest,
    plan_tables,
    read_stored_before,
)
from shardmill.beam_jobs.plan_by_ranges.planning import PlanOnStorage, plan_on_storage

__all__ = [
    "GatherFacts",
    "PlanOnStorage",
    "begun_ranges",
    "cut_files",
    "gather_by_ranges",
    "gathering_digest",
    "num_ranges",
    "plan_on_storage",
    "plan_tables",
    "read_stored_before",
    "too_little_memory",
]
