"""The whole of ``prepare`` in one process, top to bottom.

    list -> unchanged? -> encode -> plan -> account -> assemble -> report -> publish

Killed at any point and run again, it goes on: finished blocks and shards are found under their digests, and a
version becomes visible only by its manifest, at the very end.

``python -m beam_jobs.job`` is what ``beam_jobs.prepare`` starts as a child; ``run_job`` does it in process.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from beam_jobs.accounting import account, check_budget, check_shards, quarantine_reasons
from beam_jobs.blocks import (
    FACTS_SCHEMA,
    Block,
    cut_blocks,
    finished_blocks,
    read_facts,
    reuse_blocks,
    write_references,
)
from beam_jobs.container import choose_container
from beam_jobs.digests import Digests, plan_digest, run_digest
from beam_jobs.guard.attempts import adopt_guard
from beam_jobs.guard.verdicts import known_verdicts
from beam_jobs.outcome import Reused, outcome_of
from beam_jobs.plan import Plan, plan_version
from beam_jobs.request import JobRequest
from beam_jobs.runners import check_runner, run_pipeline
from beam_jobs.sources import list_inputs, open_source
from beam_jobs.sources.listing import Listing
from beam_jobs.spools import RunClaim
from beam_jobs.versions import (
    INPUTS_FILE,
    FinishedWork,
    publish,
    shards_of_plan,
    table_bytes,
    unchanged_version,
)
from beam_jobs.watch import watched
from infra.catalog import Catalog, DatasetVersion
from infra.contract import Accounting, Shard, spool_dir
from infra.errors import Cancelled
from infra.process import run_main
from infra.progress import log, progress, result, stage
from infra.records import Container
from infra.storage import Storage


def run_job(request: JobRequest) -> dict[str, Any]:
    """Prepare a version of a dataset, or find that the newest one is what would come out.

    Returns:
        What ``--json`` prints, but for the memory of the process tree, which only a parent can see.

    Raises:
        ShardmillError: see infra.errors; nothing was published, and the same call goes on where it was.
    """
    check_runner(request.config.runner.name)
    job = _Job(request, Catalog(request.root))
    with RunClaim(job.catalog, request.dataset, run_digest(job.source.uri, request.config)) as claim:
        if claim.has_work():
            claim.take()  # at once: the clean-up of another run must not take what this one goes on from
        with job.timed("list"):
            listing = job.list_source()
        digests = Digests.of(job.source.uri, listing, request.config)
        version = job.unchanged(digests)
        if version is None:
            claim.take()
            version = job.unchanged(digests)  # another process may have published it while we listed
        if version is not None:
            if claim.is_held:
                claim.clear()  # left by a run that was killed after it had published
            return job.outcome(version, listing, Reused(), unchanged=True)
        version, reused = job.prepare(listing, digests)
        claim.clear()
        claim.clear_abandoned()
    return job.outcome(version, listing, reused, unchanged=False)


@dataclass
class _Job:
    """One run, with the storage it works on and the time its stages took."""

    request: JobRequest
    catalog: Catalog
    stage_seconds: dict[str, float] = field(default_factory=dict)
    stage_cpu_seconds: dict[str, float] = field(default_factory=dict)
    _started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.config = self.request.config
        self.source = open_source(self.request)
        self.dataset = self.catalog.dataset_storage(self.request.dataset)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Note how long a stage takes, by the clock and of the processor (seconds)."""
        started, cpu_started = time.monotonic(), time.process_time()
        yield
        self.stage_seconds[name] = round(time.monotonic() - started, 3)
        self.stage_cpu_seconds[name] = round(time.process_time() - cpu_started, 3)

    def list_source(self) -> Listing:
        """List the source."""
        stage("list", unit="files")
        listing = list_inputs(self.source, self.config)
        progress("list", listing.table.num_rows, listing.table.num_rows, unit="files")
        for warning in listing.warnings:
            log(warning, level="warning")
        return listing

    def unchanged(self, digests: Digests) -> DatasetVersion | None:
        """The newest version, if this run would publish the same again."""
        return unchanged_version(self.catalog, self.request.dataset, digests, self.source)

    def prepare(self, listing: Listing, digests: Digests) -> tuple[DatasetVersion, Reused]:
        """Encode, plan, account, assemble, report and publish."""
        spool = self.dataset.child(spool_dir(digests.run))
        with self.timed("load"):
            # Beam is loaded only where there is work for it, and its time is not that of a stage.
            from beam_jobs import assemble, encode  # noqa: F401
        with self.timed("encode"):
            blocks, reused_blocks = self.encode(listing.to_read(), spool)
        with self.timed("plan"):
            stage("plan")
            plan = self.plan(listing, blocks, spool)
            progress("plan", plan.inputs.num_rows, plan.inputs.num_rows)
        accounting, reasons = self.account(plan, spool)
        with self.timed("assemble"):
            choice = choose_container(self.config, plan, spool, [block.digest for block in blocks])
            shards, digest, reused_shards = self.assemble(plan, blocks, digests, spool, choice.container)
            check_shards(shards, accounting)
        with self.timed("publish"):
            work = FinishedWork(plan, digest, choice, shards, accounting, reasons)
            version = publish(self.catalog, self.request, self.source.uri, work, digests)
        reused_images = sum(blocks[number].length for number in reused_blocks)
        return version, Reused(len(reused_blocks), reused_images, reused_shards)

    def encode(self, references: pa.Table, spool: Storage) -> tuple[list[Block], list[int]]:
        """Encode the unfinished blocks; returns all, and the numbers of those found finished."""
        blocks = cut_blocks(references, self.config.runner.block_images)
        write_references(spool, references, blocks)
        done = reuse_blocks(spool, blocks, known_verdicts(spool, self.config.runner))
        reused = [number for number, block in enumerate(blocks) if block.digest in done]
        todo = [number for number, block in enumerate(blocks) if block.digest not in done]
        if reused:
            log(f"going on from {len(reused):,} of {len(blocks):,} finished blocks")
        length_of = {block.digest: block.length for block in blocks}

        def count_done() -> int:
            return sum(length_of.get(digest, 0) for digest in finished_blocks(spool))

        with watched("encode", references.num_rows, count_done):
            if todo:
                from beam_jobs.encode import EncodeBlocks

                run_pipeline(EncodeBlocks(todo, self.source, spool, self.config), self.config.runner)
        return blocks, reused

    def plan(self, listing: Listing, blocks: Sequence[Block], spool: Storage) -> Plan:
        """Plan the version from what is known of all files."""
        tables = [read_facts(spool, block) for block in blocks]
        facts = pa.concat_tables([FACTS_SCHEMA.empty_table(), *tables])
        block_of = np.repeat(np.arange(len(blocks), dtype=np.int32), [block.length for block in blocks])
        return plan_version(listing.table, facts, block_of, self.config)

    def account(self, plan: Plan, spool: Storage) -> tuple[Accounting, dict[str, int]]:
        """Count all outcomes, and stop here if they are not good enough to publish."""
        accounting = account(plan.inputs)
        reasons = quarantine_reasons(plan.inputs)
        spool.write_atomic(INPUTS_FILE, table_bytes(plan.inputs))
        check_budget(accounting, reasons, self.config.failure_budget, f"{spool.uri}/{INPUTS_FILE}")
        return accounting, reasons

    def assemble(
        self, plan: Plan, blocks: Sequence[Block], digests: Digests, spool: Storage, container: Container
    ) -> tuple[list[Shard], str, int]:
        """Write the unfinished shards; returns all, the plan's digest, and how many were found finished."""
        from beam_jobs.assemble import AssembleShards, AssembleTask, finished_shards, reuse_shards, write_plan

        digest = plan_digest(plan, digests, container)
        write_plan(spool, digest, plan)
        task = AssembleTask(
            spool,
            self.dataset,
            digest,
            plan.shards,
            [block.digest for block in blocks],
            plan.classes,
            self.config.image.channels,
            container,
        )
        reused = reuse_shards(task, shards_of_plan(self.catalog, self.request.dataset, digest))
        todo = [number for number in range(len(plan.shards)) if number not in reused]
        if reused:
            log(f"going on from {len(reused):,} of {len(plan.shards):,} finished shards")

        def count_done() -> int:
            return sum(shard.num_examples for shard in finished_shards(task).values())

        with watched("assemble", plan.records.num_rows, count_done):
            if todo:
                run_pipeline(AssembleShards(todo, task), self.config.runner)
        return [shard for _, shard in sorted(finished_shards(task).items())], digest, len(reused)

    def outcome(
        self, version: DatasetVersion, listing: Listing, reused: Reused, *, unchanged: bool
    ) -> dict[str, Any]:
        """What ``--json`` prints."""
        seconds = time.monotonic() - self._started
        labels = listing.to_read()["label"]
        outcome = outcome_of(version, labels, reused, seconds, unchanged=unchanged)
        return outcome | {"stage_seconds": self.stage_seconds, "stage_cpu_seconds": self.stage_cpu_seconds}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job that ``--request`` describes; its result is an event (infra.progress)."""
    parser = argparse.ArgumentParser(prog="python -m beam_jobs.job", description=__doc__)
    parser.add_argument("--request", required=True, help="a JobRequest as JSON")
    arguments = parser.parse_args(argv)
    adopt_guard()
    logging.basicConfig(level=logging.ERROR)  # Beam warns of every optional library that is not there
    result(run_job(JobRequest.model_validate(json.loads(arguments.request))))
    return 0


if __name__ == "__main__":
    status = run_main(main)
    if status == Cancelled.exit_code:
        # Beam's threads are in the middle of their blocks; a normal exit would wait for them.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
