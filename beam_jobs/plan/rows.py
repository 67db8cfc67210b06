"""The rows of a plan: of all inputs (what became of each file), and of the records in stored order.

A row of the inputs combines what the listing says of a file, what reading it found, and what the plan
decided. Rows are made a range at a time, when they are asked for: as text they take several times the memory
of the columns that they are made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.plan.columns import (
    PLAN_ROWS,
    SAMPLE,
    Codes,
    Rows,
    hash_ranks,
    insertion_points,
    places_of,
)
from shardmill.beam_jobs.plan.leaks import Dropped
from shardmill.beam_jobs.plan.similarity.groups import Duplicates, Files
from shardmill.beam_jobs.reasons import LEAK, SAME_BYTES, SAME_BYTES_ACROSS_SPLITS
from shardmill.beam_jobs.schemas import (
    IMAGE_NAMES,
    LIST,
    LISTING_SCHEMA,
    PLACED_FACTS_SCHEMA,
    PLAN,
    PLAN_SCHEMA,
    Status,
    outcomes_of,
)
from shardmill.beam_jobs.tables.features import feature_columns, features_of, with_features
from shardmill.beam_jobs.tables.ids import UInt64, digest_bytes, hex_text, record_ids
from shardmill.infra.format.contract import DUPLICATE, FILTERED, INPUTS_SCHEMA, RECORD, SPLITS
from shardmill.infra.format.features import Feature

_FACTS_OF_RECORDS = ("block", "shard", "offset_bytes", *IMAGE_NAMES)


@dataclass(frozen=True)
class PlannedRecords:
    """Records in stored order.

    Attributes:
        listing: LISTING_SCHEMA and columns of features.
        facts: PLACED_FACTS_SCHEMA.
        rows: int32 [P], row of each record in the listing.
        places: int32 [P], row of each record in the facts.
        labels: int32 [P], number of the class.
    """

    listing: pa.Table
    facts: pa.Table
    rows: Rows
    places: Rows
    labels: npt.NDArray[np.int32]

    @classmethod
    def none(cls) -> Self:
        """Return an empty plan."""
        rows = np.empty(0, np.int32)
        return cls(LISTING_SCHEMA.empty_table(), PLACED_FACTS_SCHEMA.empty_table(), rows, rows, rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def features(self) -> list[Feature]:
        """The further features of the records."""
        return features_of(self.listing)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the records: PLAN_SCHEMA and columns of features."""
        return with_features(PLAN_SCHEMA, self.features)

    def ids(self) -> UInt64:
        """Return the record ids: uint64 [P]."""
        return record_ids(digest_bytes(self.facts["sha256"]))[self.places]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all records (``schema``), PLAN_ROWS at a time."""
        for start in range(0, len(self), PLAN_ROWS):
            yield from self.table(start, PLAN_ROWS).combine_chunks().to_batches()

    def table(self, start: int = 0, length: int | None = None) -> pa.Table:
        """Return the records [start, start + length), or all from ``start`` on: ``schema``."""
        part = slice(start, None if length is None else start + length)
        return self._table(self.rows[part], self.places[part], self.labels[part])

    def take(self, positions: npt.NDArray[np.int64]) -> pa.Table:
        """Return the records at some positions: ``schema``."""
        return self._table(self.rows[positions], self.places[positions], self.labels[positions])

    def sample(self, count: int, seed: int) -> pa.Table:
        """Return so many records, chosen by a hash of their ids, in stored order: ``schema``."""
        ranks = hash_ranks(self.ids(), seed, SAMPLE)
        count = min(count, len(ranks))
        chosen = np.argpartition(ranks, count - 1)[:count] if count else np.empty(0, np.int64)
        return self.take(np.sort(chosen))

    def _table(self, rows: Rows, places: Rows, labels: npt.NDArray[np.int32]) -> pa.Table:
        extra = feature_columns(self.features)
        sources = self.listing.select(["uri", "size_bytes", "group", *extra]).take(pa.array(rows))
        facts = self.facts.select(["sha256", *_FACTS_OF_RECORDS]).take(pa.array(places))
        columns = {
            "id": hex_text(digest_bytes(facts["sha256"])[:, :8]),
            "sha256": facts["sha256"],
            "label": pa.array(labels),
            "source_uri": sources["uri"],
            "source_bytes": sources["size_bytes"],
            "group": sources["group"],
        }
        columns |= {name: facts[name] for name in _FACTS_OF_RECORDS}
        columns |= {name: sources[name] for name in extra}
        schema = self.schema
        return pa.table({name: columns[name] for name in schema.names}).cast(schema)


Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Columns = dict[str, pa.Array | pa.ChunkedArray]

# The columns of FACTS_SCHEMA that are used here.
FACTS_OF_INPUTS = ("sha256", "status", "stage", "reason", "message")


@dataclass(frozen=True)
class InputRows:
    """Outcome of each input, as the columns that rows are made of.

    Attributes:
        listing: LISTING_SCHEMA, sorted by URI.
        facts: FACTS_OF_INPUTS, one row per file that was read.
        read: int32, rows of the listing that were read.
        files: the files that have a stored image.
        found: the duplicates among them.
        crossing: bool [repeats], whether the source gives a repeat another split than its record.
        splits: int8 [records], index into SPLITS.
        dropped: records dropped from train, together with all files of the same content.
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

    def uris(self) -> Iterable[pa.Array]:
        """Return the URIs of all inputs in chunks: string, sorted."""
        chunks: list[pa.Array] = self.listing["uri"].chunks
        return chunks

    @property
    def num_crossing(self) -> int:
        """Number of duplicates that the source gives another split than the record that they repeat."""
        stays = ~np.isin(self.found.record_of_repeat, self.dropped.records)
        return int((self.crossing & stays).sum())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows (INPUTS_SCHEMA), sorted by URI, PLAN_ROWS at a time."""
        for start in range(0, len(self), PLAN_ROWS):
            rows = self.table(start, PLAN_ROWS).combine_chunks()
            # Taken row by row, so that no text hides behind a null, and in the digest of a plan.
            yield from rows.take(pa.array(np.arange(rows.num_rows))).combine_chunks().to_batches()

    def table(self, start: int = 0, length: int | None = None) -> pa.Table:
        """Return the rows [start, start + length), or all from ``start`` on: INPUTS_SCHEMA, sorted by URI."""
        listing = self.listing.slice(start, length)
        stop = start + listing.num_rows
        columns: Columns = {
            name: listing[name] for name in ("uri", "size_bytes", "mtime_ns", "label", "group")
        }
        columns |= self._found_by_reading(listing, start, stop)
        columns |= self._found_by_planning(listing, columns, start, stop)
        return pa.table({name: columns[name] for name in INPUTS_SCHEMA.names}).cast(INPUTS_SCHEMA)

    def _found_by_reading(self, listing: pa.Table, start: int, stop: int) -> Columns:
        """Return digest, outcome, stage, reason and message as listing and reading leave them."""
        first, last = insertion_points(self.read, [start, stop])
        facts = self.facts.slice(first, last - first)
        at = places_of(self.read[first:last] - start, stop - start)
        digests = hex_text(self.files.digests[first:last])
        digests = pc.if_else(pc.is_valid(facts["sha256"]), digests, pa.scalar(None, pa.string()))
        columns: Columns = {"sha256": digests.take(at)}
        for name in ("reason", "message"):
            columns[name] = pc.coalesce(facts[name].take(at), listing[name])
        columns["outcome"] = outcomes_of(pc.coalesce(facts["status"].take(at), listing["status"]))
        is_listed = pc.not_equal(listing["status"], Status.TO_READ)
        listed = pc.if_else(is_listed, pa.scalar(LIST), pa.scalar(None, pa.string()))
        columns["stage"] = pc.coalesce(facts["stage"].take(at), listed)
        return columns

    def _found_by_planning(self, listing: pa.Table, columns: Columns, start: int, stop: int) -> Columns:
        """Return the columns that the plan changes, for the files that have a stored image."""
        first, last = insertion_points(self.files.rows, [start, stop])
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
        for reason, chosen in ((SAME_BYTES, is_repeat & ~crosses), (SAME_BYTES_ACROSS_SPLITS, crosses)):
            repeats = np.flatnonzero(chosen & ~is_dropped)
            columns |= self._explained(
                columns,
                self._positions(files[repeats], start, stop),
                {"stage": PLAN, "reason": reason},
                self._repetitions(record[repeats]),
            )
        leaking = np.flatnonzero(is_dropped)
        return columns | self._explained(
            columns,
            self._positions(files[leaking], start, stop),
            {"outcome": FILTERED, "stage": PLAN, "reason": LEAK},
            self.dropped.messages.take(pa.array(insertion_points(self.dropped.records, record[leaking]))),
        )

    def _record_of(self, files: Int64) -> tuple[Int64, Mask, Mask]:
        """Return the record of each file, whether the file repeats it, and whether across splits."""
        if not len(files):
            return np.empty(0, np.int64), np.empty(0, np.bool_), np.empty(0, np.bool_)
        first, last = insertion_points(self.found.repeats, [files[0], files[-1] + 1])
        is_repeat, crosses = np.zeros((2, len(files)), np.bool_)
        at = self.found.repeats[first:last] - files[0]
        is_repeat[at], crosses[at] = True, self.crossing[first:last]
        record = insertion_points(self.found.kept, files)
        record[is_repeat] = self.found.record_of_repeat[first:last]
        return record, is_repeat, crosses

    def _positions(self, files: Int64, start: int, stop: int) -> pa.Array:
        return places_of(self.files.rows[files] - start, stop - start)

    def _repetitions(self, records: Int64) -> pa.Array:
        """Return the messages that name the file whose bytes are repeated: string [records]."""
        originals = self.files.uris.take(pa.array(self.files.rows[self.found.kept[records]]))
        originals = originals.cast(pa.string())
        return pc.binary_join_element_wise("the same bytes as ", originals, "")

    def _explained(
        self, columns: Columns, at: pa.Array, words: dict[str, str], messages: pa.Array
    ) -> Columns:
        """Return columns that explain some rows; ``at`` is the number of a row's message, or null."""
        if at.null_count == len(at):
            return {}
        here = pc.is_valid(at)
        said: Columns = {
            name: pc.coalesce(columns[name], pc.if_else(here, pa.scalar(word), pa.scalar(None, pa.string())))
            for name, word in words.items()
        }
        return said | {"message": pc.coalesce(columns["message"], messages.take(at))}
