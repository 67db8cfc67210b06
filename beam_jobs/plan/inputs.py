"""The rows of all inputs: what became of each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.plan.columns import is_null, places_of
from beam_jobs.plan.duplicates import Duplicates
from beam_jobs.plan.hashing import digest_bytes, hex_text
from beam_jobs.plan.splits import Codes
from infra.contract import DUPLICATE, INPUTS_SCHEMA, RECORD, SPLITS


def inputs_table(
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
    of_facts = places_of(read, total)
    columns = {name: listing[name] for name in ("uri", "size_bytes", "mtime_ns", "label", "group")}
    digest_known = facts.select(["sha256"]).filter(pc.is_valid(facts["sha256"]))
    digest_rows = read[~is_null(facts["sha256"])]
    columns["sha256"] = hex_text(digest_bytes(digest_known["sha256"])).take(places_of(digest_rows, total))
    for name in ("outcome", "reason", "message"):
        columns[name] = pc.coalesce(facts[name].take(of_facts), listing[name])
    settled = pc.if_else(pc.is_valid(listing["outcome"]), pa.scalar("list"), pa.scalar(None, pa.string()))
    columns["stage"] = pc.coalesce(facts["stage"].take(of_facts), settled)

    # Of every file that became a record or repeats one: which record (position among the kept).
    record_of = np.empty(len(rows), np.int64)
    record_of[found.kept] = np.arange(len(found.kept))
    record_of[found.repeats] = found.record_of_repeat
    planned = places_of(rows, total)
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
    at = places_of(rows[found.repeats], len(uris))
    original = uris.take(rows[found.kept[found.record_of_repeat]])
    messages = pc.binary_join_element_wise("the same bytes as ", original, "")
    count = len(found.repeats)
    for name, text in (("stage", "plan"), ("reason", "same_bytes")):
        columns[name] = pc.coalesce(columns[name], pa.array([text] * count, pa.string()).take(at))
    columns["message"] = pc.coalesce(columns["message"], messages.take(at))
    return pa.table({name: columns[name] for name in INPUTS_SCHEMA.names}).cast(INPUTS_SCHEMA)
