"""The ranges of files, and the listing and facts of the files of each range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.encode.blocks import Block, facts_digest, place_facts, read_facts
from shardmill.beam_jobs.encode.decided import Decided
from shardmill.beam_jobs.encode.objects import move_to_listing
from shardmill.beam_jobs.encode.stage import EncodedFiles
from shardmill.beam_jobs.plan_by_ranges.choice import ranges_folder
from shardmill.beam_jobs.plan_by_ranges.tables import PlanTables
from shardmill.beam_jobs.reuse.known_files import KnownFiles, fill_in_stored_before, merge_facts
from shardmill.beam_jobs.reuse.previous import PreviousVersion
from shardmill.beam_jobs.schemas import IMAGE_NAMES, Status
from shardmill.beam_jobs.spool import damaged_shards
from shardmill.beam_jobs.tables.columns import code_texts
from shardmill.infra.digests import digest_of
from shardmill.infra.storage.filesystem import Storage

LISTED, LISTING, FACTS = "listed", "listing", "facts"
SEND_FILES: Final = "SendFiles"  # the task that gathers, after which LISTED is removed


@dataclass(frozen=True)
class FileRange:
    """Rows [start, stop) of the listing, and the blocks that hold the facts of those that were encoded.

    Attributes:
        start, stop: rows of the listing.
        blocks: (number, block) in order; the first may begin before the range, and the last end behind it.
        skip: files of the first block that lie before the range.
        length: files of the range that are in blocks.
        first_read: number of files to read before the range.
    """

    start: int
    stop: int
    blocks: Sequence[tuple[int, Block]]
    skip: int
    length: int
    first_read: int = 0


def gather_by_ranges(
    tables: PlanTables,
    listing: pa.Table,
    encoded: EncodedFiles,
    known: KnownFiles,
    previous: PreviousVersion | None,
    decided: Decided | None = None,
) -> GatherFacts:
    """Write the listing by ranges, and return an object that gathers the facts of each range.

    Args:
        tables: tables of the plan.
        listing: LISTING_SCHEMA and columns of features.
        encoded: the files that the previous version does not know.
        known: the files that it knows.
        previous: the previous version; None if there is none.
        decided: what people decided about contents.
    """
    if previous is None:
        files = cut_files(tables, listing, encoded.blocks)
        return GatherFacts(tables, files, encoded.schema, decided=decided)
    files = cut_files(tables, listing, encoded.blocks, known.mask)
    return GatherFacts(tables, files, encoded.schema, known.mask, known.facts, previous, decided)


def plan_tables(spool: Storage, digest: str, ranges: int) -> PlanTables:
    """Return the folder of a plan by ranges.

    Args:
        spool: folder of unfinished work of the run.
        digest: digest of all that the plan depends on.
        ranges: number of ranges.
    """
    return PlanTables(spool, ranges_folder(digest, ranges), ranges)


def gathering_digest(
    source: str, encoded: EncodedFiles, spool: Storage, previous: PreviousVersion | None
) -> str:
    """Return the digest of everything that the tables of a plan are made from.

    Args:
        source: digest of the listing and the settings.
        encoded: the files that the previous version does not know.
        spool: folder of unfinished work of the run.
        previous: the previous version; None if there is none.
    """
    before = [previous.version.ref, sorted(damaged_shards(spool))] if previous else []
    return digest_of([source, encoded.digests, facts_digest(spool), before], length=24)


def cut_files(
    tables: PlanTables, listing: pa.Table, blocks: Sequence[Block], known: npt.NDArray[np.bool_] | None = None
) -> list[FileRange]:
    """Write the rows of the listing by ranges, and return the ranges.

    Args:
        tables: tables of the plan.
        listing: LISTING_SCHEMA and columns of features.
        blocks: blocks of the files that were encoded.
        known: bool [files to read], the files that are not in blocks; None if all are.
    """
    bounds = [number * listing.num_rows // tables.ranges for number in range(tables.ranges + 1)]
    done = set(range(tables.ranges)) if tables.is_finished(SEND_FILES) else tables.numbers(LISTED)
    starts = np.array([block.start for block in blocks], np.int64)
    ranges, first_read, encoded = [], 0, 0
    for number, (start, stop) in enumerate(pairwise(bounds)):
        rows = listing.slice(start, stop - start)
        if number not in done:
            tables.write(LISTED, number, rows)
        read = _num_read(rows)
        length = read if known is None else int((~known[first_read : first_read + read]).sum())
        part = _file_range(start, stop, blocks, starts, encoded, length)
        ranges.append(replace(part, first_read=first_read))
        first_read, encoded = first_read + read, encoded + length
    return ranges


def _file_range(
    start: int,
    stop: int,
    blocks: Sequence[Block],
    starts: npt.NDArray[np.int64],
    first: int,
    length: int,
) -> FileRange:
    """Return a range whose files in blocks are [first, first + length) of those that were encoded."""
    if not length:
        return FileRange(start, stop, (), 0, 0)
    low = int(np.searchsorted(starts, first, side="right")) - 1
    high = int(np.searchsorted(starts, first + length))
    chosen = [(number, blocks[number]) for number in range(low, high)]
    return FileRange(start, stop, chosen, first - blocks[low].start, length)


@dataclass(frozen=True)
class GatherFacts:
    """Brings listing and facts of a range together, in tables of its own.

    Attributes:
        tables: tables of the plan; hold the rows of the listing.
        ranges: ranges of the files.
        schema: columns and types of the facts of blocks.
        known: per file that is read, whether the previous version knows its facts; None if it knows none.
        facts_of_known: PLACED_FACTS_SCHEMA and columns of features, of all known files.
        previous: the previous version.
        decided: what people decided about contents; None: nothing.
    """

    tables: PlanTables
    ranges: Sequence[FileRange]
    schema: pa.Schema
    known: npt.NDArray[np.bool_] | None = None
    facts_of_known: pa.Table | None = None
    previous: PreviousVersion | None = None
    decided: Decided | None = None

    def gather(self, number: int) -> None:
        """Write the listing and the facts of a range, with the features that reading found in the listing."""
        part = self.ranges[number]
        listing = self.tables.read(LISTED, number)
        facts = self.facts_of_blocks(part)
        if self.previous is not None:
            facts = fill_in_stored_before(facts, self.previous)
        if self.known is not None and self.facts_of_known is not None:
            first = part.first_read
            known = self.known[first : first + _num_read(listing)]
            before = int(self.known[:first].sum())
            facts = merge_facts(known, self.facts_of_known.slice(before, int(known.sum())), facts)
        if self.decided is not None:
            listing, facts = self.decided.apply(listing, facts)
        listing, facts = move_to_listing(listing, code_texts(facts, IMAGE_NAMES))
        self.tables.write(LISTING, number, listing)
        self.tables.write(FACTS, number, facts)

    def facts_of_blocks(self, part: FileRange) -> pa.Table:
        """Return the facts of the files of a range that are in blocks: PLACED_FACTS_SCHEMA and features."""
        found = (read_facts(self.tables.spool, block) for _, block in part.blocks)
        parts = [self.schema.empty_table(), *found]
        lengths = [block.length for _, block in part.blocks]
        numbers = np.repeat(np.array([number for number, _ in part.blocks], np.int32), lengths)
        facts = place_facts(pa.concat_tables(parts).combine_chunks(), numbers)
        return facts.slice(part.skip, part.length).combine_chunks()


def _num_read(listing: pa.Table) -> int:
    return int((listing["status"].to_numpy() == Status.TO_READ).sum())


def read_stored_before(gathering: GatherFacts) -> npt.NDArray[np.bool_]:
    """Return which of the encoded files have a content that the previous version stores: bool [files]."""
    if gathering.known is None:  # there is no previous version
        return np.zeros(sum(part.length for part in gathering.ranges), np.bool_)
    tables = gathering.tables
    status = [tables.read(FACTS, number)["status"].to_numpy() for number in range(tables.ranges)]
    return np.asarray(np.concatenate(status)[~gathering.known] == Status.STORED_BEFORE, np.bool_)
