"""The rows of all inputs: what became of each.

A row is what the listing says, overlaid with what reading found, and that with the plan's. Rows are made when
they are asked for, a range at a time: as text they are several times what is known of a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.plan.columns import PLAN_ROWS, Rows, places_of
from beam_jobs.plan.duplicates import Duplicates, Files
from beam_jobs.plan.hashing import hex_text
from beam_jobs.plan.leaks import Dropped
from beam_jobs.plan.splits import Codes
from infra.contract import DUPLICATE, FILTERED, INPUTS_SCHEMA, RECORD, SPLITS

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Columns = dict[str, pa.Array | pa.ChunkedArray]

# Columns of FACTS_SCHEMA that rows of inputs are made of.
FACTS_OF_INPUTS = ("sha256", "outcome", "stage", "reason", "message")

# Why a file is a duplicate; the second where the source gives it another split than the record it repeats.
SAME_BYTES, ACROSS_SPLITS = "same_bytes", "same_bytes_across_splits"


@dataclass(frozen=True)
class InputRows:
    """What became of each input.

    Attributes:
        listing: LISTING_SCHEMA, sorted by URI.
        facts: FACTS_OF_INPUTS, of the files that were read.
        read: int32, rows of the listing that were read.
        files: those of them that have a stored form.
        found: which of these repeat another.
        crossing: bool, of each of ``found.repeats``: the source gives it another split than its record.
        splits: int8, of each record of ``found.kept``.
        dropped: which of these records are dropped; all files of their content are.
    """

    listing: pa.Table
    facts: pa.Table
    read: Rows
    files: Files
    found: Duplicates
    crossing: Mask
    splits: Codes
    dropped: Dropped

    def __len__(self) -> int:
        return int(self.listing.num_rows)

    @property
    def num_crossing(self) -> int:
        """Duplicates that the source gives another split than the record that they repeat."""
        stays = ~np.isin(self.found.record_of_repeat, self.dropped.records)
        return int((self.crossing & stays).sum())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """INPUTS_SCHEMA, sorted by URI: all rows, PLAN_ROWS at a time."""
        for start in range(0, len(self), PLAN_ROWS):
            yield from self.table(start, PLAN_ROWS).combine_chunks().to_batches()

    def table(self, start: int = 0, length: int | None = None) -> pa.Table:
        """INPUTS_SCHEMA, sorted by URI: the rows [start, start + length), or all from there on."""
        listing = self.listing.slice(start, length)
        stop = start + listing.num_rows
        columns: Columns = {
            name: listing[name] for name in ("uri", "size_bytes", "mtime_ns", "label", "group")
        }
        columns |= self._found_by_reading(listing, start, stop)
        columns |= self._found_by_planning(listing, columns, start, stop)
        return pa.table({name: columns[name] for name in INPUTS_SCHEMA.names}).cast(INPUTS_SCHEMA)

    def _found_by_reading(self, listing: pa.Table, start: int, stop: int) -> Columns:
        """Digest, outcome, stage, reason and message of the files that reading settled."""
        first, last = np.searchsorted(self.read, [start, stop])
        facts = self.facts.slice(first, last - first)
        at = places_of(self.read[first:last] - start, stop - start)
        digests = hex_text(self.files.digests[first:last])
        digests = pc.if_else(pc.is_valid(facts["sha256"]), digests, pa.scalar(None, pa.string()))
        columns: Columns = {"sha256": digests.take(at)}
        for name in ("outcome", "reason", "message"):
            columns[name] = pc.coalesce(facts[name].take(at), listing[name])
        listed = pc.if_else(pc.is_valid(listing["outcome"]), pa.scalar("list"), pa.scalar(None, pa.string()))
        columns["stage"] = pc.coalesce(facts["stage"].take(at), listed)
        return columns

    def _found_by_planning(self, listing: pa.Table, columns: Columns, start: int, stop: int) -> Columns:
        """The same, with record id and split, of the files that have a stored form."""
        first, last = np.searchsorted(self.files.rows, [start, stop])
        files = np.arange(first, last)
        record, is_repeat, crosses = self._record_of(files)
        is_dropped = np.isin(record, self.dropped.records)
        stays = np.flatnonzero(~is_dropped)
        at = self._positions(files[stays], start, stop)
        ids = hex_text(self.files.digests[self.files.places[files[stays]], :8])
        names = pa.array(SPLITS, pa.string()).take(pa.array(self.splits[record[stays]]))
        outcomes = pa.array([RECORD, DUPLICATE]).take(pa.array(is_repeat[stays].astype(np.int8)))
        planned: Columns = {
            "record_id": ids.take(at),
            "split": pc.coalesce(names.take(at), listing["split"]),
            "outcome": pc.coalesce(columns["outcome"], outcomes.take(at)),
        }
        columns = columns | planned
        for reason, chosen in ((SAME_BYTES, is_repeat & ~crosses), (ACROSS_SPLITS, crosses)):
            repeats = np.flatnonzero(chosen & ~is_dropped)
            columns |= self._explained(
                columns,
                self._positions(files[repeats], start, stop),
                {"stage": "plan", "reason": reason},
                self._repetitions(record[repeats]),
            )
        leaking = np.flatnonzero(is_dropped)
        return columns | self._explained(
            columns,
            self._positions(files[leaking], start, stop),
            {"outcome": FILTERED, "stage": "plan", "reason": "leak"},
            self.dropped.messages.take(pa.array(np.searchsorted(self.dropped.records, record[leaking]))),
        )

    def _record_of(self, files: Int64) -> tuple[Int64, Mask, Mask]:
        """Of each file the place of its record among the kept, whether it repeats that, and across splits."""
        if not len(files):
            return np.empty(0, np.int64), np.empty(0, np.bool_), np.empty(0, np.bool_)
        first, last = np.searchsorted(self.found.repeats, [files[0], files[-1] + 1])
        is_repeat, crosses = np.zeros((2, len(files)), np.bool_)
        at = self.found.repeats[first:last] - files[0]
        is_repeat[at], crosses[at] = True, self.crossing[first:last]
        record = np.searchsorted(self.found.kept, files)
        record[is_repeat] = self.found.record_of_repeat[first:last]
        return record, is_repeat, crosses

    def _positions(self, files: Int64, start: int, stop: int) -> pa.Array:
        return places_of(self.files.rows[files] - start, stop - start)

    def _repetitions(self, records: Int64) -> pa.Array:
        """The sentence that names the file which is repeated."""
        originals = self.files.uris.take(pa.array(self.files.rows[self.found.kept[records]]))
        return pc.binary_join_element_wise("the same bytes as ", originals, "")

    def _explained(
        self, columns: Columns, at: pa.Array, words: dict[str, str], messages: pa.Array
    ) -> Columns:
        """Columns that say of some rows why; ``at`` leads from each row to its message, or is null."""
        if at.null_count == len(at):
            return {}
        here = pc.is_valid(at)
        said: Columns = {
            name: pc.coalesce(columns[name], pc.if_else(here, pa.scalar(word), pa.scalar(None, pa.string())))
            for name, word in words.items()
        }
        return said | {"message": pc.coalesce(columns["message"], messages.take(at))}
