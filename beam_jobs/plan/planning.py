"""A plan, step by step.

1. *Duplicates.* Files with equal SHA-256 become one record; the smallest URI is kept.
2. *Splits.* Given, or that of the earlier version, or each class cut at the exact fractions by hash rank
   (beam_jobs.plan.splits).
3. *Shards* and the order in them (beam_jobs.plan.shards).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.config import PrepareConfig
from beam_jobs.plan.columns import is_null, split_codes
from beam_jobs.plan.duplicates import find_duplicates, find_label_conflicts
from beam_jobs.plan.earlier import Earlier
from beam_jobs.plan.hashing import SPLIT, digest_bytes, hash_ranks, record_ids
from beam_jobs.plan.inputs import inputs_table
from beam_jobs.plan.records import planned_records
from beam_jobs.plan.shards import PlannedShard, deal
from beam_jobs.plan.splits import assign_splits
from beam_jobs.plan.statistics import split_statistics
from infra.contract import LabelConflict, Leaks, SplitStatistics


@dataclass(frozen=True)
class Plan:
    """What a version will be.

    Attributes:
        inputs: INPUTS_SCHEMA, a row a file, sorted by URI.
        records: PLAN_SCHEMA, those to be written, shard after shard, each in stored order.
        shards: those to be written, train first.
        classes: names by label: those of the earlier version, then new ones that have a record, sorted.
        label_conflicts: the same bytes under several labels.
        cross_split_duplicates: duplicates that the source gives another split than the record kept.
        statistics: split -> what its images are like, inherited ones among them.
        near_duplicates: NEAR_DUPLICATES_SCHEMA; None where they were not looked for.
        leaks: groups that are divided among splits.
        inherited: numbers of the earlier version's shards that stay as they are, rising.
    """

    inputs: pa.Table
    records: pa.Table
    shards: list[PlannedShard]
    classes: list[str]
    label_conflicts: list[LabelConflict]
    cross_split_duplicates: int
    statistics: dict[str, SplitStatistics]
    near_duplicates: pa.Table | None = None
    leaks: Leaks = field(default_factory=Leaks)
    inherited: list[int] = field(default_factory=list)


def plan_version(
    listing: pa.Table,
    facts: pa.Table,
    blocks: npt.NDArray[np.int32],
    config: PrepareConfig,
    earlier: Earlier | None = None,
) -> Plan:
    """Plan a version.

    Args:
        listing: LISTING_SCHEMA, sorted by URI.
        facts: FACTS_SCHEMA, a row for each row of the listing whose outcome is null, in order.
        blocks: int32 [rows of facts], the number of the block that holds each.
        config: splits, shards and seed.
        earlier: the version before this one, whose records keep their split and classes their number.

    Raises:
        DataError: two files with different content share a record id.
    """
    listing, facts = listing.combine_chunks(), facts.combine_chunks()  # taking from many chunks is slow
    read = np.flatnonzero(is_null(listing["outcome"]))
    if len(read) != facts.num_rows or len(blocks) != facts.num_rows:
        raise ValueError(f"{facts.num_rows} rows of facts for {len(read)} files that were read")
    stored = np.flatnonzero(is_null(facts["outcome"]))  # rows of facts
    rows = read[stored]  # the same as rows of the listing
    digests = digest_bytes(facts["sha256"].take(stored))
    labels = listing["label"].take(rows)
    found = find_duplicates(digests, listing["uri"], rows)

    kept = found.kept  # positions in `rows`
    classes, label_codes = _class_codes(labels.take(kept), earlier)
    ids = record_ids(digests[kept])
    given = split_codes(listing["split"].take(rows))
    fixed = given[kept]
    if earlier is not None:
        fixed = np.where(fixed >= 0, fixed, earlier.split_of(ids))
    splits = assign_splits(fixed, label_codes, hash_ranks(ids, config.seed, SPLIT), config.splits.fractions())
    stored_bytes = facts["stored_bytes"].take(stored[kept]).to_numpy()
    held = earlier.held if earlier is not None else None
    homes = None
    if held is not None:
        wanted = listing.select(["uri", "group"]).take(rows[kept])
        homes = held.homes(ids, label_codes, splits, wanted["uri"], wanted["group"])
    dealt = deal(ids, label_codes, splits, stored_bytes, config, held, homes)

    order = dealt.order
    places = stored[kept[order]]
    records = planned_records(
        listing, facts.take(places), rows[kept[order]], label_codes[order], blocks[places]
    )
    # Only where the source gives both splits can a duplicate cross them.
    crossing = given[found.repeats], given[kept[found.record_of_repeat]]
    return Plan(
        inputs=inputs_table(listing, facts, read, rows, digests, found, splits),
        records=records,
        shards=dealt.shards,
        classes=classes,
        label_conflicts=find_label_conflicts(digests, listing["uri"].take(rows), labels, found),
        cross_split_duplicates=int(((crossing[0] >= 0) & (crossing[0] != crossing[1])).sum()),
        statistics=split_statistics(facts, stored[kept], splits),
        inherited=dealt.inherited,
    )


def _class_codes(labels: pa.ChunkedArray, earlier: Earlier | None) -> tuple[list[str], npt.NDArray[np.int64]]:
    """(names by number, number of each row)."""
    known = list(earlier.classes) if earlier is not None else []
    classes = known + sorted(str(name) for name in set(pc.unique(labels).to_pylist()) - set(known))
    codes = pc.index_in(labels, pa.array(classes, pa.string()))
    return classes, codes.to_numpy().astype(np.int64)
