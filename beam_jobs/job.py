"""The whole of ``prepare`` in one process, top to bottom.

    list -> unchanged? -> known? -> encode the rest -> plan -> account -> assemble -> report -> publish

The facts of all files are in memory only while the version is planned, and not even then if it is planned by
ranges. Before the shards are written, all tables of the plan are in files.

A run that was killed at any point continues when it is run again: it finds finished blocks and shards by
their digests. A version becomes visible only with its manifest, which is written last. If another process
publishes first, the run plans again on top of that version.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_jobs.assemble.container import ContainerChoice, choose_container
from beam_jobs.assemble.stage import AssembledShards, Copying, Layout, all_shards, assemble_shards, lay_out
from beam_jobs.encode.blocks import facts_digest
from beam_jobs.encode.known_digests import DigestList, KnownContents
from beam_jobs.encode.stage import EncodedFiles, encode_files
from beam_jobs.execution.runners import check_runner, load_beam
from beam_jobs.images.features import features_found, move_to_listing
from beam_jobs.images.masks import with_mask_features
from beam_jobs.images.objects import has_objects, place_objects
from beam_jobs.plan import AnyPlan, Plan, plan_version
from beam_jobs.plan_by_ranges import (
    GatherFacts,
    cut_files,
    num_ranges,
    plan_on_storage,
    plan_tables,
    read_stored_before,
)
from beam_jobs.publish.accounting import Counts, account_and_write, check_budget, check_shards
from beam_jobs.publish.crowding import crowded_shards
from beam_jobs.publish.digests import Digests, builds_of, plan_digest, run_digest, work_digest
from beam_jobs.publish.outline import Outline, inherited_shards, store_plan
from beam_jobs.publish.result import SavedWork, label_counts, outcome_of
from beam_jobs.publish.unchanged import unchanged_version
from beam_jobs.publish.versions import INPUTS_FILE, publish, shards_of_plan
from beam_jobs.release_memory import release_memory
from beam_jobs.request import JobRequest
from beam_jobs.reuse.facts import fill_in_stored_before, merge_facts
from beam_jobs.reuse.known_files import find_known_files, stored_contents
from beam_jobs.reuse.policy import retried_reasons, reuse_of
from beam_jobs.reuse.previous import PreviousVersion
from beam_jobs.schemas import IMAGE_NAMES, PLACED_FACTS_SCHEMA, Status, has_masks
from beam_jobs.sources import fetches, list_inputs, make_readable, open_reader, open_source
from beam_jobs.sources.embeddings import EmbeddingFiles
from beam_jobs.sources.listing import Listing, read_listing, write_listing
from beam_jobs.sources.recognition.recognising import settled
from beam_jobs.sources.workplace import Workplace
from beam_jobs.spool.builds import check_builds, note_builds
from beam_jobs.spool.claims import RunClaim, damaged_shards
from beam_jobs.tables.text_columns import code_texts
from infra.dataset.catalog import Catalog
from infra.dataset.drift.figures import Drift
from infra.dataset.maintenance.purged import purged_contents
from infra.dataset.publishing import publish_on_newest
from infra.dataset.version import DatasetVersion
from infra.digests import digest_of
from infra.errors import CorruptDataError
from infra.format.contract import Manifest
from infra.format.layout import spool_dir
from infra.processes.turns import Turn
from infra.progress import job as announce
from infra.progress import log, progress, stage
from infra.readable import counted
from infra.storage.filesystem import Storage

# The part of the time that each stage takes at a guess, for the progress of the whole job.
_SHARES = {"list": 2, "fetch": 60, "encode": 75, "plan": 3, "assemble": 14, "publish": 6}


def prepare_version(request: JobRequest) -> dict[str, Any]:
    """Prepare a version of a dataset, or find that the newest version is already up to date.

    Returns:
        The result that ``--json`` prints, except for the memory of the process tree.

    Raises:
        ShardmillError: see infra.errors; nothing was published, and the same call continues the work.
    """
    request = settled(request)
    check_runner(request.config.runner)
    announce("prepare", _SHARES if fetches(request.config) else {**_SHARES, "fetch": 0})
    job = _Job(request, Catalog(request.root))
    run = run_digest(job.source.uri, request.config)
    with RunClaim(job.catalog, request.dataset, run) as claim, Turn(f"prepare {request.dataset}") as turn:
        if claim.has_work() or fetches(request.config):
            claim.take()  # at once: the clean-up of another run must not delete the files that are there
        with job.timed("list"):
            job.list_source()
        digests = Digests.of(job.source.uri, job.listing, request.config, job.embeddings)
        counts = label_counts(job.listing.to_read())
        version = job.unchanged(digests)
        if version is None:
            turn.take()
            claim.take()
            version = job.unchanged(digests)  # another process may have published meanwhile
        if version is not None:
            if claim.is_held:
                claim.clear()  # left by a run that was killed after it had published
            return job.outcome(version, counts, SavedWork(), unchanged=True)
        version, reused = job.prepare(digests)
        claim.clear()
        claim.clear_abandoned()
    return job.outcome(version, counts, reused, unchanged=False)


@dataclass(frozen=True)
class KnownFiles:
    """The files whose facts the previous version knows.

    Attributes:
        mask: bool [files to read], whether a file is known.
        facts: PLACED_FACTS_SCHEMA and columns of features, a row for each known file.
    """

    mask: npt.NDArray[np.bool_]
    facts: pa.Table


@dataclass
class _Job:
    """One run, with its storage and the times of its stages."""

    request: JobRequest
    catalog: Catalog
    listing: Listing = field(init=False)
    stage_seconds: dict[str, float] = field(default_factory=dict)
    stage_cpu_seconds: dict[str, float] = field(default_factory=dict)
    drift: Drift | None = None
    _started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.config = self.request.config
        self.source = open_source(self.request)
        self.dataset = self.catalog.dataset_storage(self.request.dataset)
        self.embeddings = EmbeddingFiles.of(self.source, self.config.groups.embeddings)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Record the wall time and the processor time of a stage (seconds)."""
        started, cpu_started = time.monotonic(), time.process_time()
        yield
        seconds, cpu_seconds = time.monotonic() - started, time.process_time() - cpu_started
        self.stage_seconds[name] = round(self.stage_seconds.get(name, 0) + seconds, 3)
        self.add_cpu_seconds(name, cpu_seconds)
        release_memory()

    def add_cpu_seconds(self, name: str, cpu_seconds: float) -> None:
        """Add to the processor time of a stage (seconds)."""
        self.stage_cpu_seconds[name] = round(self.stage_cpu_seconds.get(name, 0) + cpu_seconds, 3)

    def list_source(self) -> None:
        """List the source, and keep the result as ``self.listing``."""
        stage("list", unit="files")
        place = Workplace(self.open_spool(), self.dataset) if fetches(self.config) else None
        listing = list_inputs(self.source, self.config, place)
        progress("list", listing.table.num_rows, listing.table.num_rows, unit="files")
        for warning in listing.warnings:
            log(warning, level="warning")
        self.listing = listing

    def open_spool(self) -> Storage:
        """Open the spool of this run, unless there is unfinished work of other codec builds."""
        run, work = run_digest(self.source.uri, self.config), work_digest(self.source.uri, self.config)
        spool, builds = self.dataset.child(spool_dir(run)), builds_of(self.config)
        check_builds(self.dataset, run, work, builds)
        note_builds(spool, work, builds)
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
        with self.timed("plan"):
            stage("plan")
            ranges = num_ranges(self.config, len(known.mask))
            plan: AnyPlan
            if ranges == 1:
                facts, saved = self.gather_facts(known, encoded, previous, spool)
                plan = self.plan(facts, previous, spool)
                del facts
            else:
                plan, saved = self.plan_by_ranges(ranges, known, encoded, digests, previous, spool)
            del known
            counts = self.account(plan, spool)
            choice = choose_container(self.config, plan, spool, encoded.digests, previous)
            copying = self.copying(plan, digests, spool, choice, encoded, previous)
            layout = self.lay_out(plan, copying, previous)
            if isinstance(plan, Plan):
                plan = plan.without_records()  # most facts of each image are no longer needed
            outline = store_plan(plan, self.dataset, copying.plan_digest, choice, counts, previous)
            del plan, previous  # from here on memory is for the shards
        with self.timed("assemble"):
            assembled = self.assemble(layout, copying, outline)
            shards = all_shards(outline.inherited, assembled.shards)
            check_shards(shards, outline.counts.accounting)
        with self.timed("publish"):
            version, self.drift = publish(
                self.catalog, self.request, self.source.uri, outline, shards, digests, newest
            )
        if crowding := crowded_shards(version.manifest):
            log(crowding, level="warning")
        warn_of_empty_splits(version.manifest)
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
        references = read_listing(spool).to_read()
        known = self.find_known(references, previous, spool)
        others = references.filter(pa.array(~known.mask)) if known.mask.any() else references
        make_readable(self.source, self.config, others, spool)
        reader = open_reader(self.source, self.config, spool)
        encoded = encode_files(others, reader, spool, self.config)
        self.add_cpu_seconds("encode", encoded.cpu_seconds)
        return known, encoded

    def find_known(
        self, references: pa.Table, previous: PreviousVersion | None, spool: Storage
    ) -> KnownFiles:
        """Find the files that the previous version knows, and write the lists of digests for the workers."""
        purged = DigestList.of(purged_contents(self.dataset))
        if previous is None:
            KnownContents(purged=purged).write(spool)
            return KnownFiles(np.zeros(references.num_rows, np.bool_), PLACED_FACTS_SCHEMA.empty_table())
        retried = retried_reasons(previous.version.manifest, self.config)
        features = features_found(self.config)
        known = KnownFiles(*find_known_files(previous, references, purged, retried, features))
        KnownContents(stored_contents(previous), purged).write(spool)
        return known

    def gather_facts(
        self, known: KnownFiles, encoded: EncodedFiles, previous: PreviousVersion | None, spool: Storage
    ) -> tuple[pa.Table, SavedWork]:
        """Return the facts of all files (PLACED_FACTS_SCHEMA and features), and the work not done again."""
        read = encoded.facts(spool)
        release_memory()  # the tables of single blocks took as much again
        saved = saved_work(known, encoded, read["status"].to_numpy() == Status.STORED_BEFORE)
        if previous is not None:
            read = fill_in_stored_before(read, previous)
        return code_texts(merge_facts(known.mask, known.facts, read), IMAGE_NAMES), saved

    def plan(self, facts: pa.Table, previous: PreviousVersion | None, spool: Storage) -> Plan:
        """Plan the version from the listing and the facts of all files."""
        listed = code_texts(read_listing(spool).table, ("label",))
        if has_objects(listed):
            upright = self.config.source.objects.coordinates == "upright"
            relative = self.config.source.has_relative_boxes
            placed = place_objects(listed, facts, self.config.image, upright=upright, relative=relative)
            listed, facts = placed.listing, placed.facts
            if placed.num_cut_off:
                cut_off = counted(placed.num_cut_off, "object")
                log(f"{cut_off} left out, because the stored images do not show them", level="warning")
        listed, facts = move_to_listing(listed, facts)
        if has_masks(listed):
            listed = with_mask_features(listed, list(self.config.source.masks.classes))
        release_memory()
        vectors = self.embeddings.read() if self.embeddings else None
        plan = plan_version(listed, facts, self.config, previous.planned if previous else None, vectors)
        if plan.num_without_vector:
            without = counted(plan.num_without_vector, "record")
            log(
                f"{without} without a vector in groups.embeddings.file: compared by looks alone",
                level="warning",
            )
        progress("plan", len(plan.input_rows), len(plan.input_rows))
        return plan

    def plan_by_ranges(
        self,
        ranges: int,
        known: KnownFiles,
        encoded: EncodedFiles,
        digests: Digests,
        previous: PreviousVersion | None,
        spool: Storage,
    ) -> tuple[AnyPlan, SavedWork]:
        """Plan the version by ranges, with all rows in the spool; see ``beam_jobs.plan_by_ranges``."""
        listing = read_listing(spool).table
        before = [previous.version.ref, sorted(damaged_shards(spool))] if previous else []
        digest = digest_of([digests.source, encoded.digests, facts_digest(spool), before], length=24)
        tables = plan_tables(spool, digest, ranges)
        if previous is None:
            files = cut_files(tables, listing, encoded.blocks)
            gathering = GatherFacts(tables, files, encoded.schema)
        else:
            files = cut_files(tables, listing, encoded.blocks, known.mask)
            gathering = GatherFacts(tables, files, encoded.schema, known.mask, known.facts, previous)
        plan = plan_on_storage(gathering, self.config, previous.planned if previous else None)
        release_memory()
        progress("plan", len(plan.input_rows), len(plan.input_rows))
        return plan, saved_work(known, encoded, read_stored_before(gathering))

    def account(self, plan: AnyPlan, spool: Storage) -> Counts:
        """Count all outcomes, and raise an error if they are not good enough to publish."""
        release_memory()
        with spool.atomic_writer(INPUTS_FILE) as stream:
            counts = account_and_write(plan.input_rows.batches(), stream)
        if counts.reasons:
            from beam_jobs.report.lost import tell_lost  # with the pictures of the report

            tell_lost(plan.input_rows.batches(), open_reader(self.source, self.config, spool))
        check_budget(counts, self.config.failure_budget, f"{spool.uri}/{INPUTS_FILE}")
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
        assembled = assemble_shards(layout, copying, outline.choice.container, self.config)
        self.add_cpu_seconds("assemble", assembled.cpu_seconds)
        return assembled

    def outcome(
        self, version: DatasetVersion, counts: dict[str, int], reused: SavedWork, *, unchanged: bool
    ) -> dict[str, Any]:
        """Return the result that ``--json`` prints."""
        seconds = time.monotonic() - self._started
        outcome = outcome_of(version, counts, reused, seconds, unchanged=unchanged)
        drift = self.drift.to_json() if self.drift else None
        times = {"stage_seconds": self.stage_seconds, "stage_cpu_seconds": self.stage_cpu_seconds}
        return outcome | {"drift": drift} | times


def saved_work(known: KnownFiles, encoded: EncodedFiles, stored_before: npt.NDArray[np.bool_]) -> SavedWork:
    """Return the work that is not done again.

    Args:
        known: the files whose facts the previous version knows.
        encoded: the others.
        stored_before: bool [others], those whose content the previous version stores.
    """
    return SavedWork(
        blocks=len(encoded.reused),
        images=encoded.num_reused_files(),
        known_files=int(known.mask.sum()),
        known_contents=int(stored_before.sum()),
        num_encoded=encoded.num_decoded(stored_before),
    )


def warn_of_empty_splits(manifest: Manifest) -> None:
    """Warn if a split that the settings ask for has no example."""
    from beam_jobs.report.findings import empty_splits  # the report's template engine is loaded by now

    for finding in empty_splits(manifest):
        log(f"{finding.text} {finding.remedy}", level="warning")
