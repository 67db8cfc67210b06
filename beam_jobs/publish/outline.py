"""The outline of a plan, kept once its tables are stored, so that memory is free for writing the shards."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from shardmill.beam_jobs.assemble.container import ContainerChoice
from shardmill.beam_jobs.plan import AnyPlan, PlanSummary
from shardmill.beam_jobs.publish.accounting import Counts
from shardmill.beam_jobs.publish.input_parts import table_bytes, write_inputs
from shardmill.beam_jobs.reuse.previous import PreviousVersion
from shardmill.infra.digests import sha256_hex
from shardmill.infra.format.contract import Shard, TableFile
from shardmill.infra.format.layout import data_dir
from shardmill.infra.storage.filesystem import Storage

NEAR_DUPLICATES_FILE = "near_duplicates.parquet"


@dataclass(frozen=True)
class Outline:
    """A plan whose rows are stored. Small, however many files there are.

    Attributes:
        digest: digest of the plan; names the version's folder.
        choice: the container of the shards, and why.
        inherited: shards of the previous version that stay as they are.
        counts: number of inputs by outcome.
        inputs: the parts that hold the rows of all inputs.
        near_duplicates: NEAR_DUPLICATES_SCHEMA; None if they were not looked for.
        summary: what the manifest says of the plan.
    """

    digest: str
    choice: ContainerChoice
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
    counts: Counts,
    previous: PreviousVersion | None,
) -> Outline:
    """Write the tables of a plan, so that it can be let go of before its shards are written.

    Args:
        plan: the plan.
        dataset: the dataset's folder.
        digest: of the plan. The spool names it already, so that the files of a killed run are found.
        choice: the container.
        counts: number of inputs by outcome.
        previous: the version that was planned on top of; equal parts of its inputs are inherited.
    """
    folder, near = data_dir(digest), plan.near_duplicates
    return Outline(
        digest=digest,
        choice=choice,
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
