"""The whole of ``prepare`` in one process, top to bottom.

    list -> unchanged? -> known? -> encode the rest -> plan -> account -> assemble -> report -> publish

What is known of each file is held while it is planned with, and no longer: before the shards are written, all
tables of the plan lie in files.

Killed at any point and run again, it goes on: finished blocks and shards are found under their digests, and a
version becomes visible only by its manifest, at the very end. Where another process publishes first, the run
plans anew on top of that version.

``python -m beam_jobs.job`` is what ``beam_jobs.prepare`` starts as a child, with the request as its standard
input; ``run_job`` does it in process.
"""

from __future__ import annotations

if __name__ == "__main__":
    from beam_jobs.loading import begin_loading
    from beam_jobs.memory import choose_allocators

    begin_loading()
    choose_allocators()  # before pyarrow is loaded

import logging
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_jobs.accounting import account_and_write, check_budget, check_shards
from beam_jobs.builds import check_builds, note_builds
from beam_jobs.container import ContainerChoice
from beam_jobs.contents import DigestList, KnownContents
from beam_jobs.digests import Digests, plan_digest, run_digest, work_digest
from beam_jobs.guard.attempts import adopt_guard
from beam_jobs.known import Facts, Parent, merge
from beam_jobs.loading import all_is_loaded, meanwhile
from beam_jobs.memory import columns_given_back, give_back
from beam_jobs.outcome import Reused, class_counts, outcome_of
from beam_jobs.plan import Plan, plan_version
from beam_jobs.pool import pool_cpu_seconds, pool_processes
from beam_jobs.request import JobRequest, given_request
from beam_jobs.reuse import container_of, crowded_shards, retried_reasons, reuse_of
from beam_jobs.runners import check_runner, load_beam, pool_size
from beam_jobs.sources import list_inputs, open_source
from beam_jobs.sources.listing import Listing, read_listing, write_listing
from beam_jobs.spools import RunClaim, damaged_shards
from beam_jobs.stages import (
    Copying,
    EncodedFiles,
    Layout,
    all_shards,
    assemble_shards,
    encode_files,
    inherited_shards,
    lay_out,
)
from beam_jobs.texts import code_texts
from beam_jobs.versions import INPUTS_FILE, publish, shards_of_plan, store_plan, unchanged_version
from infra.catalog import Catalog, DatasetVersion
from infra.contract import Accounting, spool_dir
from infra.errors import CorruptDataError, PublishConflict
from infra.process import exit_at_once, run_main
from infra.progress import log, progress, result, stage
from infra.purged import purged_contents
from infra.storage import Storage

Counts = tuple[Accounting, dict[str, int]]  # of outcomes, and of the reasons of quarantined inputs

_ATTEMPTS = 10  # of others to publish first
_STARTED_SECONDS = 0.5  # after which a pipeline that has anything to do is waited for


def run_job(request: JobRequest) -> dict[str, Any]:
    """Prepare a version of a dataset, or find that the newest one is what would come out.

    Returns:
        What ``--json`` prints, but for the memory of the process tree, which only a parent can see.

    Raises:
        ShardmillError: see infra.errors; nothing was published, and the same call goes on where it was.
    """
    check_runner(request.config.runner)
    job = _Job(request, Catalog(request.root))
    with RunClaim(job.catalog, request.dataset, run_digest(job.source.uri, request.config)) as claim:
        if claim.has_work():
            claim.take()  # at once: the clean-up of another run must not take what this one goes on from
        with job.timed("list"):
            job.list_source()
        digests = Digests.of(job.source.uri, job.listing, request.config)
        counts = class_counts(job.listing.to_read()["label"])
        version = job.unchanged(digests)
        if version is None:
            claim.take()
            version = job.unchanged(digests)  # another process may have published it while we listed
        if version is not None:
            if claim.is_held:
                claim.clear()  # left by a run that was killed after it had published
            return job.outcome(version, counts, Reused(), unchanged=True)
        version, reused = job.prepare(digests)
        claim.clear()
        claim.clear_abandoned()
    return job.outcome(version, counts, reused, unchanged=False)


@dataclass
class _Job:
    """One run, with the storage it works on and the time its stages took."""

    request: JobRequest
    catalog: Catalog
    listing: Listing = field(init=False)
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
        started, cpu_started = time.monotonic(), _cpu_seconds()
        yield
        seconds, cpu_seconds = time.monotonic() - started, _cpu_seconds() - cpu_started
        self.stage_seconds[name] = round(self.stage_seconds.get(name, 0) + seconds, 3)
        self.stage_cpu_seconds[name] = round(self.stage_cpu_seconds.get(name, 0) + cpu_seconds, 3)
        give_back()

    def list_source(self) -> None:
        """List the source: ``self.listing``."""
        stage("list", unit="files")
        listing = list_inputs(self.source, self.config)
        progress("list", listing.table.num_rows, listing.table.num_rows, unit="files")
        for warning in listing.warnings:
            log(warning, level="warning")
        self.listing = listing

    def unchanged(self, digests: Digests) -> DatasetVersion | None:
        """The newest version, if this run would publish the same again."""
        return unchanged_version(self.catalog, self.request.dataset, digests, self.source, self.config.runner)

    def prepare(self, digests: Digests) -> tuple[DatasetVersion, Reused]:
        """Attempt to make the next version, again on top of each version that others publish meanwhile."""
        with self.timed("load"):  # only where there is work for it; its time is not that of a stage
            load_beam(self.config.runner)
        spool = self.dataset.child(spool_dir(digests.run))
        work = work_digest(self.source.uri, self.config)
        check_builds(self.dataset, digests.run, work, digests.builds)
        note_builds(spool, work, digests.builds)
        write_listing(spool, self.listing.table)
        del self.listing  # each attempt reads it anew, and lets go of it
        conflicts = 0
        while True:
            damaged = damaged_shards(spool)
            try:
                return self.attempt(digests, spool, damaged)
            except PublishConflict:
                conflicts += 1
                if conflicts == _ATTEMPTS:
                    raise
                log("another process published a version meanwhile; planning anew on top of it")
            except CorruptDataError as error:
                if damaged_shards(spool) <= damaged:
                    raise
                log(f"{error.message}; it is read from the source in its place", level="warning")

    def attempt(
        self, digests: Digests, spool: Storage, damaged: Collection[str]
    ) -> tuple[DatasetVersion, Reused]:
        """Encode what is new, plan, assemble, report and publish, on top of the newest version."""
        newest = self.catalog.latest(self.request.dataset)
        parent = None
        if newest is not None:
            reuse = reuse_of(newest.manifest, self.config, self.source.uri, digests.builds)
            parent = Parent(newest, reuse, damaged)
        with self.timed("encode"), meanwhile(_load_report, _STARTED_SECONDS):
            references = read_listing(spool).to_read()
            known, facts = self.known(references, parent, spool)
            others = references.filter(pa.array(~known)) if known.any() else references
            encoded = encode_files(others, self.source, spool, self.config)
            del references, others
        with self.timed("plan"), columns_given_back():
            stage("plan")
            read = Facts(*encoded.facts(spool))
            give_back()  # of which the tables of single blocks took as much again
            by_content = read.without_place()
            reused = Reused(
                blocks=len(encoded.reused),
                images=encoded.num_reused_files(),
                known_files=int(known.sum()),
                known_contents=int(by_content.sum()),
                num_encoded=int((~by_content & ~np.isin(read.blocks, encoded.reused)).sum()),
            )
            facts = merge(known, facts, parent.with_known_contents(read) if parent else read).coded()
            listed = code_texts(read_listing(spool).table, ("label",))
            del read, known, by_content
            give_back()
            earlier = parent.earlier if parent else None
            plan = plan_version(listed, facts.table, facts.blocks, self.config, earlier)
            progress("plan", len(plan.input_rows), len(plan.input_rows))
            del listed, facts, earlier
            layout, copying, choice, counts = self.lay_out(plan, digests, spool, encoded, parent)
            plan = plan.without_records()  # most of what is known of each image is needed no more
            outline = store_plan(plan, self.dataset, copying.plan_digest, choice, counts, copying.before)
            del plan, parent  # from here on memory is for the shards
        with self.timed("assemble"):
            written, num_reused = assemble_shards(layout, copying, outline.choice.container, self.config)
            shards = all_shards(outline.inherited, written)
            check_shards(shards, outline.accounting)
        with self.timed("publish"):
            version = publish(self.catalog, self.request, self.source.uri, outline, shards, digests, newest)
        if crowding := crowded_shards(version.manifest):
            log(crowding, level="warning")
        return version, replace(reused, shards=num_reused, inherited_shards=len(outline.inherited))

    def lay_out(
        self, plan: Plan, digests: Digests, spool: Storage, encoded: EncodedFiles, parent: Parent | None
    ) -> tuple[Layout, Copying, ContainerChoice, Counts]:
        """Account for a plan, and write its records for the workers."""
        give_back()
        counts = self.account(plan, spool)
        give_back()
        before = parent.version if parent else None
        choice = container_of(self.config, plan, spool, encoded.digests, parent)
        inherited = [shard.path for shard in inherited_shards(before, plan)]
        digest = plan_digest(plan, digests, choice.container, inherited)
        copying = Copying(self.dataset, spool, digest, encoded.digests, before)
        published = list(shards_of_plan(self.catalog, self.request.dataset, digest))
        layout = lay_out(plan, copying, parent, published)
        give_back()
        return layout, copying, choice, counts

    def known(
        self, references: pa.Table, parent: Parent | None, spool: Storage
    ) -> tuple[npt.NDArray[np.bool_], Facts]:
        """Which files the parent knows, and what of them; for the rest, lay out what workers ask for."""
        purged = DigestList.of(purged_contents(self.dataset))
        if parent is None:
            KnownContents(purged=purged).write(spool)
            return np.zeros(references.num_rows, np.bool_), Facts.none()
        retried = retried_reasons(parent.version.manifest, self.config)
        known, facts = parent.known_files(references, purged, retried)
        KnownContents(parent.stored_contents(), purged).write(spool)
        return known, facts

    def account(self, plan: Plan, spool: Storage) -> Counts:
        """Count all outcomes, and stop here if they are not good enough to publish."""
        with spool.atomic_writer(INPUTS_FILE) as stream:
            accounting, reasons = account_and_write(plan.input_rows.batches(), stream)
        check_budget(accounting, reasons, self.config.failure_budget, f"{spool.uri}/{INPUTS_FILE}")
        return accounting, reasons

    def outcome(
        self, version: DatasetVersion, counts: dict[str, int], reused: Reused, *, unchanged: bool
    ) -> dict[str, Any]:
        """What ``--json`` prints."""
        seconds = time.monotonic() - self._started
        outcome = outcome_of(version, counts, reused, seconds, unchanged=unchanged)
        return outcome | {"stage_seconds": self.stage_seconds, "stage_cpu_seconds": self.stage_cpu_seconds}


def _load_report() -> None:
    from beam_jobs.report import load_templates

    load_templates()


def _cpu_seconds() -> float:
    return time.process_time() + pool_cpu_seconds()


def main() -> int:
    """Run the job that standard input describes; its result is an event (infra.progress)."""
    all_is_loaded()
    adopt_guard()
    logging.basicConfig(level=logging.ERROR)  # Beam warns of every optional library that is not there
    request = given_request()
    with pool_processes(pool_size(request.config.runner)):
        result(run_job(request))
    return 0


if __name__ == "__main__":
    # All is said and let go. A normal exit would wait for Beam's threads, which may be in the middle of their
    # blocks, and take apart all that was loaded, which lasts as long as loading it.
    exit_at_once(run_main(main))
