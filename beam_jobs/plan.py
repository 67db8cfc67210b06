"""The plan of a version: what is known of all files, to duplicates, splits, shards and places.

Pure functions over Arrow tables, vectorised: no Beam, no files. The result depends on the rows alone, not on
the order in which blocks were finished, nor on the number of workers.

1. *Duplicates.* Files with equal SHA-256 become one record; the smallest URI is kept.
2. *Splits.* Given, or each class cut at the exact fractions by hash rank (beam_jobs.splits).
3. *Shards.* Of each split, records sorted by class and then by hash are dealt in turn, so that the shards
   differ by at most one record and by at most one of each class. Inside a shard another hash gives the order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.blocks import FACTS_SCHEMA
from beam_jobs.config import PrepareConfig, ShardsConfig
from beam_jobs.duplicates import Duplicates, find_duplicates, find_label_conflicts
from beam_jobs.hashing import UInt64, digest_bytes, hash_ranks, hex_text, record_ids
from beam_jobs.splits import Codes, assign_splits
from infra.contract import DUPLICATE, IMAGE_COLUMNS, INPUTS_SCHEMA, RECORD, SPLITS, LabelConflict

# purposes of hash ranks
_SPLIT, _SHARD, _PLACE = range(3)

# Of a stored record apart from its image: the other features of the example, and the frame (bytes).
RECORD_OVERHEAD_BYTES = 176

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


@dataclass(frozen=True, slots=True)
class PlannedShard:
    """A shard to be written: rows [start, start + length) of the planned records."""

    split: str
    index: int
    count: int
    start: int
    length: int


@dataclass(frozen=True)
class Plan:
    """What a version will be.

    Attributes:
        inputs: INPUTS_SCHEMA, a row a file, sorted by URI.
        records: PLAN_SCHEMA, shard after shard, each in stored order.
        shards: train first.
        classes: names of the classes that have a record, sorted.
        label_conflicts: the same bytes under several labels.
        cross_split_duplicates: duplicates that the source gives another split than the record kept.
    """

    inputs: pa.Table
    records: pa.Table
    shards: list[PlannedShard]
    classes: list[str]
    label_conflicts: list[LabelConflict]
    cross_split_duplicates: int


def plan_version(
    listing: pa.Table, facts: pa.Table, blocks: npt.NDArray[np.int32], config: PrepareConfig
) -> Plan:
    """Plan a version.

    Args:
        listing: LISTING_SCHEMA, sorted by URI.
        facts: FACTS_SCHEMA, a row for each row of the listing whose outcome is null, in order.
        blocks: int32 [rows of facts], the number of the block that holds each.
        config: splits, shards and seed.

    Raises:
        DataError: two files with different content share a record id.
    """
    listing, facts = listing.combine_chunks(), facts.combine_chunks()  # taking from many chunks is slow
    read = np.flatnonzero(_is_null(listing["outcome"]))
    if len(read) != facts.num_rows or len(blocks) != facts.num_rows:
        raise ValueError(f"{facts.num_rows} rows of facts for {len(read)} files that were read")
    stored = np.flatnonzero(_is_null(facts["outcome"]))  # rows of facts
    rows = read[stored]  # the same as rows of the listing
    digests = digest_bytes(facts["sha256"].take(stored))
    labels = listing["label"].take(rows)
    found = find_duplicates(digests, listing["uri"], rows)

    kept = found.kept  # positions in `rows`
    classes, label_codes = _class_codes(labels.take(kept))
    ids = record_ids(digests[kept])
    given = _split_codes(listing["split"].take(rows))
    splits = assign_splits(
        given[kept], label_codes, hash_ranks(ids, config.seed, _SPLIT), config.splits.fractions()
    )
    stored_bytes = facts["stored_bytes"].take(stored[kept]).to_numpy()
    order, shards = _deal(ids, label_codes, splits, stored_bytes, config)

    places = stored[kept[order]]
    records = _records(listing, facts.take(places), rows[kept[order]], label_codes[order], blocks[places])
    # Only where the source gives both splits can a duplicate cross them.
    crossing = given[found.repeats], given[kept[found.record_of_repeat]]
    return Plan(
        inputs=_inputs(listing, facts, read, rows, digests, found, splits),
        records=records,
        shards=shards,
        classes=classes,
        label_conflicts=find_label_conflicts(digests, listing["uri"].take(rows), labels, found),
        cross_split_duplicates=int(((crossing[0] >= 0) & (crossing[0] != crossing[1])).sum()),
    )


def num_shards(num_examples: int, num_bytes: int, config: ShardsConfig) -> int:
    """How many shards a split of so many records and bytes has."""
    wanted = config.num_shards or -(-num_bytes // config.shard_bytes)
    return max(1, min(wanted, num_examples))


def _is_null(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.is_null(column).to_numpy(), np.bool_)


def _class_codes(labels: pa.ChunkedArray) -> tuple[list[str], npt.NDArray[np.int64]]:
    """(sorted names, code of each row)."""
    classes = sorted(str(name) for name in pc.unique(labels).to_pylist())
    codes = pc.index_in(labels, pa.array(classes, pa.string()))
    return classes, codes.to_numpy().astype(np.int64)


def _split_codes(splits: pa.ChunkedArray) -> Codes:
    codes = pc.index_in(splits, pa.array(SPLITS, pa.string()))
    return np.asarray(pc.fill_null(codes, -1).to_numpy(), np.int8)


def _deal(
    ids: UInt64,
    labels: npt.NDArray[np.int64],
    splits: Codes,
    stored_bytes: npt.NDArray[np.int64],
    config: PrepareConfig,
) -> tuple[npt.NDArray[np.int64], list[PlannedShard]]:
    """(stored order of all records, shards as ranges of it)."""
    by_class = np.lexsort((hash_ranks(ids, config.seed, _SHARD), labels, splits))
    shard_of = np.empty(len(ids), np.int64)
    shards: list[PlannedShard] = []
    start = 0
    for code, split in enumerate(SPLITS):
        length = int((splits == code).sum())
        if not length:
            continue
        members = by_class[start : start + length]
        num_bytes = int(stored_bytes[members].sum()) + length * RECORD_OVERHEAD_BYTES
        count = num_shards(length, num_bytes, config.shards)
        turn = np.arange(length) % count
        shard_of[members] = len(shards) + turn
        sizes = np.bincount(turn, minlength=count)
        starts = start + np.concatenate([[0], np.cumsum(sizes)[:-1]])
        shards += [
            PlannedShard(split, index, count, int(starts[index]), int(sizes[index])) for index in range(count)
        ]
        start += length
    return np.lexsort((hash_ranks(ids, config.seed, _PLACE), shard_of)), shards


def _records(
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


def _inputs(
    listing: pa.Table,
    facts: pa.Table,
    read: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    digests: npt.NDArray[np.uint8],
    found: Duplicates,
    splits: Codes,
) -> pa.Table:
    """INPUTS_SCHEMA: the listing's own rows, overlaid with what reading found, and that with the plan's."""
    total = listing.num_rows
    of_facts = _places(read, total)
    columns = {name: listing[name] for name in ("uri", "size_bytes", "mtime_ns", "label", "group")}
    digest_known = facts.select(["sha256"]).filter(pc.is_valid(facts["sha256"]))
    digest_rows = read[~_is_null(facts["sha256"])]
    columns["sha256"] = hex_text(digest_bytes(digest_known["sha256"])).take(_places(digest_rows, total))
    for name in ("outcome", "reason", "message"):
        columns[name] = pc.coalesce(facts[name].take(of_facts), listing[name])
    settled = pc.if_else(pc.is_valid(listing["outcome"]), pa.scalar("list"), pa.scalar(None, pa.string()))
    columns["stage"] = pc.coalesce(facts["stage"].take(of_facts), settled)

    # Of every file that became a record or repeats one: which record (position among the kept).
    record_of = np.empty(len(rows), np.int64)
    record_of[found.kept] = np.arange(len(found.kept))
    record_of[found.repeats] = found.record_of_repeat
    planned = _places(rows, total)
    ids = hex_text(digests[:, :8])
    columns["record_id"] = ids.take(planned)
    names = pa.array(SPLITS, pa.string()).take(pa.array(splits[record_of], pa.int8()))
    columns["split"] = pc.coalesce(names.take(planned), listing["split"].combine_chunks())
    is_repeat = np.zeros(len(rows), np.int8)
    is_repeat[found.repeats] = 1
    outcomes = pa.array([RECORD, DUPLICATE]).take(pa.array(is_repeat))
    columns["outcome"] = pc.coalesce(columns["outcome"], outcomes.take(planned))
    return _explain_duplicates(columns, listing["uri"], rows, found)


def _explain_duplicates(
    columns: dict[str, pa.ChunkedArray],
    uris: pa.ChunkedArray,
    rows: npt.NDArray[np.int64],
    found: Duplicates,
) -> pa.Table:
    """Say of each duplicate which file it repeats."""
    at = _places(rows[found.repeats], len(uris))
    original = uris.take(rows[found.kept[found.record_of_repeat]])
    messages = pc.binary_join_element_wise("the same bytes as ", original, "")
    count = len(found.repeats)
    for name, text in (("stage", "plan"), ("reason", "same_bytes")):
        columns[name] = pc.coalesce(columns[name], pa.array([text] * count, pa.string()).take(at))
    columns["message"] = pc.coalesce(columns["message"], messages.take(at))
    return pa.table({name: columns[name] for name in INPUTS_SCHEMA.names}).cast(INPUTS_SCHEMA)


def _places(rows: npt.NDArray[np.int64], total: int) -> pa.Array:
    """For each of ``total`` rows, its position in ``rows``, or null: int64 [total], for ``take``."""
    places = np.full(total, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return pa.array(places, mask=places < 0)
