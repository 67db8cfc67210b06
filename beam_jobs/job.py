"""The whole of ``prepare`` in one process, top to bottom.

    list -> unchanged? -> known? -> encode the rest -> plan -> account -> assemble -> report -> publish

The facts of all files are in memory only while the version is planned, and not even then if it is planned by
ranges. Before the shards are written, all tables of the plan are in files.

A run that was killed at any point continues when it is run again: it finds finished blocks and shards by
their digests. A version becomes visible only with its manifest, which is written last. If another process
publishes first, the run plans again on top of that version.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from shardmill.beam_jobs.assemble.stage import (
    AssembledShards,
    ContainerChoice,
    Copying,
    Layout,
    all_shards,
    assemble_shards,
    choose_container,
    lay_out,
)
from shardmill.beam_jobs.encode.blocks import DigestList
from shardmill.beam_jobs.encode.decided import Decided
from shardmill.beam_jobs.encode.objects import complete_listing
from shardmill.beam_jobs.encode.stage import EncodedFiles, encode_files
from shardmill.beam_jobs.execution.runners import check_runner, load_beam
from shardmill.beam_jobs.plan import AnyPlan, Plan, plan_version
from shardmill.beam_jobs.plan_by_ranges import (
    begun_ranges,
    gather_by_ranges,
    gathering_digest,
    num_ranges,
    plan_on_storage,
    plan_tables,
    read_stored_before,
    too_little_memory,
)
from shardmill.beam_jobs.publish.accounting import (
    Counts,
    account_and_write,
    check_budget,
    check_shards,
    is_refused,
)
from shardmill.beam_jobs.publish.digests import (
    Digests,
    builds_of,
    plan_digest,
    run_digest,
    unchanged_version,
    work_digest,
)
from shardmill.beam_jobs.publish.outline import Outline, inherited_shards, store_plan
from shardmill.beam_jobs.publish.result import SavedWork, label_counts, outcome_of
from shardmill.beam_jobs.publish.versions import (
    INPUTS_FILE,
    publish,
    shards_of_plan,
    warn_about,
    without_label_edits,
)
from shardmill.beam_jobs.request import JobRequest
from shardmill.beam_jobs.reuse.known_files import (
    KnownFiles,
    find_known_files,
    gather_facts,
    write_known_contents,
)
from shardmill.beam_jobs.reuse.previous import PreviousVersion, reuse_of
from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.sources import fetches, list_inputs, make_readable, open_reader, open_source
from shardmill.beam_jobs.sources.embeddings import EmbeddingFiles
from shardmill.beam_jobs.sources.kind_modules import Workplace
from shardmill.beam_jobs.sources.listing import Listing, read_listing, write_listing
from shardmill.beam_jobs.sources.recognition.recognising import settled
from shardmill.beam_jobs.spool import (
    RunClaim,
    begun_source,
    check_builds,
    damaged_shards,
    forget_source,
    note_builds,
    note_source,
)
from shardmill.beam_jobs.tables import release_memory
from shardmill.beam_jobs.tables.columns import code_texts
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.decisions import DecisionLog
from shardmill.infra.dataset.drift.figures import Drift
from shardmill.infra.dataset.maintenance.removed import purged_contents
from shardmill.infra.dataset.publishing import publish_on_newest
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError, DataError, StorageError, UsageError
from shardmill.infra.format.contract import LabelEditsSummary
from shardmill.infra.format.layout import spool_dir
from shardmill.infra.processes.trees import free_memory_bytes
from shardmill.infra.processes.turns import Turn
from shardmill.infra.progress import job as announce
from shardmill.infra.progress import log, progress, stage
from shardmill.infra.readable import counted
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.objects.hub import commit_of, hub_place, is_on_hub
from shardmill.infra.whole_job import StageTimes

# So few images take seconds: such a run need not wait for a long one (shardmill.infra.processes.turns).
_SHORT_IMAGES = 1_000
# The part of the time that each stage takes at a guess, for the progress of the whole job.
_SHARES = {"list": 2, "fetch": 60, "encode": 75, "plan": 3, "assemble": 14, "publish": 6}


def prepare_version(request: JobRequest) -> dict[str, Any]:
    """Prepare a version of a dataset, or find that the newest version is already up to date.

    Returns:
        The result that ``--json`` prints, except for the memory of the process tree.

    Raises:
        ShardmillError: see shardmill.infra.errors; nothing was published, and the same call continues the
            work.
    """
    given, request = request.source, _begun(request)
    check_runner(request.config.runner, (request.source, request.root))
    announce("prepare", _SHARES if fetches(request.config) else {**_SHARES, "fetch": 0})
    job = _Job(request, Catalog(request.root, request.config.signing_key), given)
    run = run_digest(job.source.uri, request.config)
    with (
        RunClaim(job.catalog, request.dataset, run) as claim,
        Turn(f"prepare {request.dataset}") as turn,
        _source_forgotten_if_refused(job.dataset, run),
    ):
        if claim.has_work() or fetches(request.config):
            claim.take()  # at once: the clean-up of another run must not delete the files that are there
        with job.timed("list"):
            job.list_source()
        decided = job.decided.digest
        digests = Digests.of(job.source.uri, job.listing, request.config, job.embeddings, decided)
        counts = label_counts(job.listing.to_read())
        version = job.unchanged(digests)
        if version is None:
            turn.take(is_short=job.listing.to_read().num_rows <= _SHORT_IMAGES)
            claim.take()
            version = job.unchanged(digests)  # another process may have published meanwhile
        if version is not None:
            if claim.is_held:
                claim.clear()  # left by a run that was killed after it had published
            job.catalog.sign_if_unsigned(version)
            return job.outcome(version, counts, SavedWork(), unchanged=True)
        version, reused = job.prepare(digests)
        claim.clear()
        claim.clear_abandoned()
    return job.outcome(version, counts, reused, unchanged=False)


def _begun(given: JobRequest) -> JobRequest:
    """Settle a request. An interrupted run goes on at the commit of the Hub with which it began."""
    request = settled(given)
    if not is_on_hub(request.source):
        return request
    run = run_digest(open_source(request).uri, request.config)
    begun = begun_source(Catalog(request.root).dataset_storage(request.dataset), run, given.source)
    if begun is None or begun == request.source:
        return request
    try:
        commit_of(hub_place(begun))
    except StorageError as error:
        log(
            f"{error.message}, with which an interrupted run began: {request.source} is read", level="warning"
        )
        return request
    log(f"an interrupted run goes on with {begun}; {request.source} is newer", level="warning")
    return request.model_copy(update={"source": begun})


@contextmanager
def _source_forgotten_if_refused(dataset: Storage, run: str) -> Iterator[None]:
    """Let the next run read the newest commit of the Hub if this one is refused: the data may be mended."""
    try:
        yield
    except (DataError, UsageError):
        forget_source(dataset, run)
        raise


@dataclass
class _Job:
    """One run, with its storage and the times of its stages; ``given`` is the source as the user gave it."""

    request: JobRequest
    catalog: Catalog
    given: str
    listing: Listing = field(init=False)
    decided: Decided = field(init=False)
    listing_edits: LabelEditsSummary | None = None
    label_edits: LabelEditsSummary | None = None
    times: StageTimes = field(default_factory=StageTimes)
    drift: Drift | None = None
    changes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.config = self.request.config
        self.source = open_source(self.request)
        self.dataset = self.catalog.dataset_storage(self.request.dataset)
        self.embeddings = EmbeddingFiles.of(self.source, self.config.groups.embeddings)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Measure a stage, and release the memory that it no longer needs."""
        with self.times.measure(name):
            yield
        release_memory()

    def list_source(self) -> None:
        """List the source, and keep the result as ``self.listing``."""
        stage("list", unit="files")
        place = Workplace(self.open_spool(), self.dataset) if fetches(self.config) else None
        listing = list_inputs(self.source, self.config, place)
        progress("list", listing.table.num_rows, listing.table.num_rows, unit="files")
        newest = self.catalog.latest(self.request.dataset)
        before = without_label_edits(newest.manifest if newest else None, self.source.uri, self.config)
        self.decided = Decided.of(DecisionLog(self.dataset).read().changing, self.config)
        warnings = [*listing.warnings, *([before] if before else []), *self.decided.warnings(listing.table)]
        for warning in warnings:
            log(warning, level="warning")
        self.listing, self.listing_edits = listing, listing.label_edits

    def open_spool(self) -> Storage:
        """Open the spool of this run, unless there is unfinished work of other codec builds."""
        run, work = run_digest(self.source.uri, self.config), work_digest(self.source.uri, self.config)
        spool, builds = self.dataset.child(spool_dir(run)), builds_of(self.config)
        check_builds(self.dataset, run, work, builds)
        note_builds(spool, work, builds)
        if is_on_hub(self.request.source):
            note_source(spool, self.given, self.request.source)
        return spool

    def unchanged(self, digests: Digests) -> DatasetVersion | None:
        """Return the newest version if this run would publish the same again, else None."""
        reader = open_reader(self.source, self.config)
        newest = self.catalog.latest(self.request.dataset)
        return unchanged_version(newest, digests, self.listing, reader, self.config.runner)

    def prepare(self, digests: Digests) -> tuple[DatasetVersion, SavedWork]:
        """Make the next version; start again if another process publishes a version meanwhile."""
        with self.timed("load"):  # only if there is work to do; not counted as a stage
            load_beam(self.config.runner)
        if self.embeddings is not None:
            self.embeddings.read()  # wrong ones are refused before any image is read
        spool = self.open_spool()
        write_listing(spool, self.listing.table)
        del self.listing  # each attempt reads it from the spool
        return publish_on_newest(self.request.dataset, lambda: self.attempt_past_damage(digests, spool))

    def attempt_past_damage(self, digests: Digests, spool: Storage) -> tuple[DatasetVersion, SavedWork]:
        """Make the next version; start again if a shard of the previous version is found damaged."""
        while True:
            damaged = damaged_shards(spool)
            try:
                return self.attempt(digests, spool, damaged)
            except CorruptDataError as error:
                if damaged_shards(spool) <= damaged:
                    raise
                log(f"{error.message}; its images are read from the source instead", level="warning")

    def attempt(
        self, digests: Digests, spool: Storage, damaged: Collection[str]
    ) -> tuple[DatasetVersion, SavedWork]:
        """Encode new files, plan, assemble, report and publish, on top of the newest version."""
        newest = self.catalog.latest(self.request.dataset)
        previous = self.reusable(newest, digests, damaged)
        with self.timed("encode"):
            known, encoded = self.encode(previous, spool)
        kept = previous if previous is not None and previous.reuse.contents else None
        before = (kept.version.manifest.samples, int(known.mask.sum())) if kept else None
        samples = encoded.samples(spool, self.config.image, before)
        with self.timed("plan"):
            stage("plan")
            plan, saved = self.plan(known, encoded, digests, previous, spool)
            del known
            counts = self.account(plan, spool)
            choice = choose_container(self.config, plan, spool, encoded.digests, previous, samples.channels)
            copying = self.copying(plan, digests, spool, choice, encoded, previous)
            layout = self.lay_out(plan, copying, previous)
            if isinstance(plan, Plan):
                plan = plan.without_records()  # most facts of each image are no longer needed
            digest = copying.plan_digest
            outline = store_plan(plan, self.dataset, digest, choice, samples, counts, previous)
            del plan, previous  # from here on memory is for the shards
        with self.timed("assemble"):
            assembled = self.assemble(layout, copying, outline)
            shards = all_shards(outline.inherited, assembled.shards)
            check_shards(shards, outline.counts.accounting)
        self.changes = {} if newest is None else self.config.changes_since(newest.manifest.config)
        with self.timed("publish"):
            version, self.drift = publish(
                self.catalog,
                self.request,
                self.source,
                outline,
                shards,
                digests,
                newest,
                self.label_edits,
            )
        warn_about(version.manifest)
        return version, replace(saved, shards=assembled.num_reused, inherited_shards=len(outline.inherited))

    def reusable(
        self, newest: DatasetVersion | None, digests: Digests, damaged: Collection[str]
    ) -> PreviousVersion | None:
        """Return the newest version with the parts of it that this run may reuse; None if there is none."""
        if newest is None:
            return None
        reuse = reuse_of(newest.manifest, self.config, self.source.uri, digests.builds)
        return PreviousVersion(newest, reuse, damaged)

    def encode(self, previous: PreviousVersion | None, spool: Storage) -> tuple[KnownFiles, EncodedFiles]:
        """Find the files that the previous version knows, and encode the others."""
        listing = read_listing(spool)
        warning = too_little_memory(self.config, listing.table, free_memory_bytes())
        if warning is not None:
            log(warning, level="warning")
        references = listing.to_read()
        purged = DigestList.of(purged_contents(self.dataset))
        known = find_known_files(previous, references, purged, self.config)
        write_known_contents(spool, previous, purged)
        others = references.filter(pa.array(~known.mask)) if known.mask.any() else references
        make_readable(self.source, self.config, others, spool)
        reader = open_reader(self.source, self.config, spool)
        encoded = encode_files(others, reader, spool, self.config)
        self.times.add_cpu_seconds("encode", encoded.cpu_seconds)
        return known, encoded

    def plan(
        self,
        known: KnownFiles,
        encoded: EncodedFiles,
        digests: Digests,
        previous: PreviousVersion | None,
        spool: Storage,
    ) -> tuple[AnyPlan, SavedWork]:
        """Plan the version: in memory or, if there are many files, by ranges with all rows in the spool."""
        planned = previous.planned if previous else None
        plan: AnyPlan
        listed = read_listing(spool).table
        ranges = num_ranges(self.config, listed, free_memory_bytes(), begun_ranges(spool))
        if ranges > 1:
            digest = gathering_digest(digests.source, encoded, spool, previous)
            tables = plan_tables(spool, digest, ranges)
            gathering = gather_by_ranges(tables, listed, encoded, known, previous, self.decided)
            del listed
            plan = plan_on_storage(gathering, self.config, planned)
            stored_before = read_stored_before(gathering)
        else:
            facts = gather_facts(encoded, spool, previous, known.mask, known.facts)
            stored_before = (facts["status"].to_numpy() == Status.STORED_BEFORE)[~known.mask]
            listed = code_texts(listed, ("label",))
            listed, facts = self.decided.apply(listed, facts)
            listed, facts = complete_listing(listed, facts, self.config)
            release_memory()
            vectors = self.embeddings.read() if self.embeddings else None
            plan = plan_version(listed, facts, self.config, planned, vectors)
        if plan.num_without_vector:
            without = counted(plan.num_without_vector, "record")
            log(
                f"{without} without a vector in groups.embeddings.file: compared by looks alone",
                level="warning",
            )
        progress("plan", len(plan.input_rows), len(plan.input_rows))
        return plan, SavedWork.of(known, encoded, stored_before)

    def account(self, plan: AnyPlan, spool: Storage) -> Counts:
        """Count all outcomes, and raise an error if they are not good enough to publish."""
        release_memory()
        with spool.atomic_writer(INPUTS_FILE) as stream:
            counts = account_and_write(plan.input_rows.batches(), stream)
        if counts.reasons:
            from shardmill.beam_jobs.report.lost import tell_lost  # with the pictures of the report

            tell_lost(plan.input_rows.batches(), open_reader(self.source, self.config, spool))
        where = f"{spool.uri}/{INPUTS_FILE}"
        if is_refused(counts, self.config.failure_budget):
            from shardmill.beam_jobs.report.lost import write_refused  # with the templates of the report

            reader = open_reader(self.source, self.config, spool)
            batches = plan.input_rows.batches
            page = write_refused(spool, self.request.dataset, counts.accounting, batches, reader)
            where = f"{page} (as a table: {where})"
        check_budget(counts, self.config.failure_budget, where)
        self.label_edits = self.decided.summary(plan.input_rows.batches(), self.listing_edits)
        release_memory()
        return counts

    def copying(
        self,
        plan: AnyPlan,
        digests: Digests,
        spool: Storage,
        choice: ContainerChoice,
        encoded: EncodedFiles,
        previous: PreviousVersion | None,
    ) -> Copying:
        """Return the places that the records of a plan are copied from and to."""
        inherited = [shard.path for shard in inherited_shards(previous, plan)]
        digest = plan_digest(plan, digests, choice.container, inherited)
        return Copying(self.dataset, spool, digest, encoded.digests, previous.version if previous else None)

    def lay_out(self, plan: AnyPlan, copying: Copying, previous: PreviousVersion | None) -> Layout:
        """Write the records of a plan for the workers."""
        published = list(shards_of_plan(self.catalog, self.request.dataset, copying.plan_digest))
        layout = lay_out(plan, copying, previous, published)
        release_memory()
        return layout

    def assemble(self, layout: Layout, copying: Copying, outline: Outline) -> AssembledShards:
        """Write the planned shards."""
        container, channels = outline.choice.container, outline.samples.channels
        assembled = assemble_shards(layout, copying, container, channels, self.config.runner)
        self.times.add_cpu_seconds("assemble", assembled.cpu_seconds)
        return assembled

    def outcome(
        self, version: DatasetVersion, counts: dict[str, int], reused: SavedWork, *, unchanged: bool
    ) -> dict[str, Any]:
        """Return the result that ``--json`` prints."""
        times = self.times
        outcome = outcome_of(version, counts, reused, times.since_start(), unchanged=unchanged)
        outcome["drift"] = self.drift.to_json() if self.drift else None
        outcome["settings_changed"] = self.changes
        return outcome | {"stage_seconds": times.seconds, "stage_cpu_seconds": times.cpu_seconds}
