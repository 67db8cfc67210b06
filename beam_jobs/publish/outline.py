"""The tables of a plan as files, and its outline, which stays in memory while the shards are written."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.beam_jobs.assemble.stage import ContainerChoice
from shardmill.beam_jobs.plan import AnyPlan, OutcomeRows, PlanSummary
from shardmill.beam_jobs.publish.accounting import Counts
from shardmill.beam_jobs.reuse.previous import PreviousVersion
from shardmill.beam_jobs.tables.ids import part_lengths, table_digest
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import sha256_hex
from shardmill.infra.format.contract import Shard, TableFile
from shardmill.infra.format.layout import data_dir, inputs_file
from shardmill.infra.preparation import SampleKind
from shardmill.infra.storage.filesystem import Storage

NEAR_DUPLICATES_FILE = "near_duplicates.parquet"


@dataclass(frozen=True)
class Outline:
    """A plan whose rows are stored. Small, however many files there are.

    Attributes:
        digest: digest of the plan; names the version's folder.
        choice: the container of the shards, and why.
        samples: of all stored images.
        inherited: shards of the previous version that stay as they are.
        counts: number of inputs by outcome.
        inputs: the parts that hold the rows of all inputs.
        near_duplicates: NEAR_DUPLICATES_SCHEMA; None if they were not looked for.
        summary: what the manifest says of the plan.
    """

    digest: str
    choice: ContainerChoice
    samples: SampleKind
    inherited: list[Shard]
    counts: Counts
    inputs: list[TableFile]
    near_duplicates: TableFile | None
    summary: PlanSummary


def store_plan(
    plan: AnyPlan,
    dataset: Storage,
    digest: str,
    choice: ContainerChoice,
    samples: SampleKind,
    counts: Counts,
    previous: PreviousVersion | None,
) -> Outline:
    """Write the tables of a plan, so that it can be let go of before its shards are written.

    Args:
        plan: the plan.
        dataset: the dataset's folder.
        digest: of the plan. The spool names it already, so that the files of a killed run are found.
        choice: the container.
        samples: of all stored images.
        counts: number of inputs by outcome.
        previous: the version that was planned on top of; equal parts of its inputs are inherited.
    """
    folder, near = data_dir(digest), plan.near_duplicates
    return Outline(
        digest=digest,
        choice=choice,
        samples=samples,
        inherited=inherited_shards(previous, plan),
        counts=counts,
        inputs=write_inputs(dataset, folder, plan.input_rows, previous.version if previous else None),
        near_duplicates=None
        if near is None
        else _write_table(dataset, f"{folder}/{NEAR_DUPLICATES_FILE}", near),
        summary=plan.summary,
    )


def inherited_shards(previous: PreviousVersion | None, plan: AnyPlan) -> list[Shard]:
    """Return the shards of the previous version that a plan does not change."""
    return [previous.version.manifest.shards[number] for number in plan.inherited] if previous else []


def _write_table(storage: Storage, path: str, table: pa.Table) -> TableFile:
    data = table_bytes(table)
    storage.write_atomic(path, data)
    return TableFile(path=path, num_rows=table.num_rows, num_bytes=len(data), sha256=sha256_hex(data))


ROWS_OF_A_PART = 8_192  # on average


def write_inputs(
    storage: Storage, folder: str, inputs: pa.Table | OutcomeRows, previous: DatasetVersion | None = None
) -> list[TableFile]:
    """Write the parts that the previous version does not have.

    Args:
        storage: the dataset's folder.
        folder: receives new parts; relative to the dataset.
        inputs: INPUTS_SCHEMA, sorted by URI; or the columns that such rows are made of.
        previous: the version whose equal parts are inherited if they are still there.

    Returns:
        All parts, in order.
    """
    known = {part.path.rpartition("/")[2]: part for part in previous.manifest.inputs} if previous else {}
    present = previous.present_files() if previous else {}
    parts = []
    for rows in cut_inputs(inputs):
        name = inputs_file(table_digest(rows)[:24])
        part = known.get(name)
        if part is None or present.get(part.path) != part.num_bytes:
            data = table_bytes(rows)
            digest = sha256_hex(data)
            if part is None or part.sha256 != digest:
                part = TableFile(
                    path=f"{folder}/{name}", num_rows=rows.num_rows, num_bytes=len(data), sha256=digest
                )
            storage.write_atomic(part.path, data)  # a part that was lost comes back where it was
        parts.append(part)
    return parts


def cut_inputs(inputs: pa.Table | OutcomeRows, mean: int = ROWS_OF_A_PART) -> Iterator[pa.Table]:
    """Yield the rows (INPUTS_SCHEMA) in parts; one empty part if there is no row."""
    if isinstance(inputs, pa.Table):
        uris, rows = inputs["uri"].iterchunks(), inputs.slice
    else:
        uris, rows = iter(inputs.uris()), inputs.table
    start = 0
    for length in part_lengths(uris, mean):
        yield rows(start, length)
        start += length
    if not start:
        yield rows(0, 0)


def table_bytes(table: pa.Table) -> bytes:
    """Return a table as a Parquet file. The same rows give the same bytes."""
    sink = io.BytesIO()
    pq.write_table(table.combine_chunks(), sink, compression="zstd")
    return sink.getvalue()
