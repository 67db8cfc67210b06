"""The number of ranges of a plan, and the files of each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_jobs.config import PrepareConfig
from beam_jobs.encode.blocks import Block
from beam_jobs.plan_by_ranges.files import LISTED, FileRange
from beam_jobs.plan_by_ranges.tables import PlanTables
from beam_jobs.schemas import Status
from infra.errors import ConfigError
from infra.storage.filesystem import Storage

FILES_IN_ONE_PROCESS = 20_000_000
FILES_OF_A_RANGE = 1_000_000


def num_ranges(config: PrepareConfig, num_files: int) -> int:
    """Return in how many ranges to plan a version; 1 to plan it in one process.

    Raises:
        ConfigError: ranges are asked for, and the settings of the plan need one process.
    """
    wanted = config.runner.plan_ranges
    obstacle = _obstacle(config)
    if wanted > 1 and obstacle is not None:
        raise ConfigError(
            f"runner.plan_ranges = {wanted}, and {obstacle} can only be planned in one process",
            "leave runner.plan_ranges out, or set it to 1",
        )
    if wanted or obstacle is not None or num_files <= FILES_IN_ONE_PROCESS:
        return wanted or 1
    return -(-num_files // FILES_OF_A_RANGE)


def _obstacle(config: PrepareConfig) -> str | None:
    """Return the part of the settings that needs a plan in one process; None if there is none."""
    if config.source.label_kind not in ("class", "none"):
        return f"labels of kind {config.source.label_kind!r}"
    if config.groups.embeddings.file is not None:
        return "groups.embeddings"
    return None


def plan_tables(spool: Storage, digest: str, ranges: int) -> PlanTables:
    """Return the folder of a plan by ranges.

    Args:
        spool: of the run.
        digest: of all that the plan depends on.
        ranges: number of ranges.
    """
    return PlanTables(spool, f"ranges/{digest}-{ranges}", ranges)


def cut_files(
    tables: PlanTables, listing: pa.Table, blocks: Sequence[Block], known: npt.NDArray[np.bool_] | None = None
) -> list[FileRange]:
    """Write the rows of the listing by ranges, and return the ranges.

    Args:
        tables: of the plan.
        listing: LISTING_SCHEMA and columns of features.
        blocks: of the files that were encoded.
        known: bool [files to read], the files that are not in blocks; None if all are.
    """
    bounds = [number * listing.num_rows // tables.ranges for number in range(tables.ranges + 1)]
    done = tables.numbers(LISTED)
    starts = np.array([block.start for block in blocks], np.int64)
    ranges, place, encoded = [], 0, 0
    for number, (start, stop) in enumerate(pairwise(bounds)):
        rows = listing.slice(start, stop - start)
        if number not in done:
            tables.write(LISTED, number, rows)
        read = int((rows["status"].to_numpy() == Status.TO_READ).sum())
        length = read if known is None else int((~known[place : place + read]).sum())
        ranges.append(_file_range(start, stop, blocks, starts, encoded, length))
        place, encoded = place + read, encoded + length
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
