"""``--dry-run``: an estimate of the result and the cost of a run. Writes nothing to the dataset.

Files are counted in the listing, so duplicates and broken files are not known yet. Sizes and times are
measured on a small sample of the files, chosen by the hash of their URIs, and scaled up.

The sample is encoded by the same task in the same kind of process as in a run, because a file may crash a
decoder.
"""

from __future__ import annotations

import heapq
import tempfile
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.encode.block_task import EncodeBlocks
from shardmill.beam_jobs.encode.blocks import (
    Block,
    DigestList,
    KnownContents,
    block_digest,
    further_pictures,
    read_facts,
    write_references,
)
from shardmill.beam_jobs.encode.decided import Decided
from shardmill.beam_jobs.encode.stage import samples_of
from shardmill.beam_jobs.execution.pool import Pool
from shardmill.beam_jobs.execution.pool.supervision import ItemFailed
from shardmill.beam_jobs.execution.runners import check_runner, num_processes
from shardmill.beam_jobs.execution.task import recover_fault
from shardmill.beam_jobs.plan import RECORD_OVERHEAD_BYTES, num_shards
from shardmill.beam_jobs.plan.splits import divide_by_fractions
from shardmill.beam_jobs.plan_by_ranges import too_little_memory
from shardmill.beam_jobs.publish.digests import Digests
from shardmill.beam_jobs.publish.result import class_counts, label_counts
from shardmill.beam_jobs.request import JobRequest
from shardmill.beam_jobs.reuse.known_files import find_known_files
from shardmill.beam_jobs.reuse.previous import PreviousVersion, reuse_of
from shardmill.beam_jobs.schemas import MASK_COLUMNS, Status, has_masks, reference_schema
from shardmill.beam_jobs.sources import fetches, list_inputs, make_readable, open_reader, open_source
from shardmill.beam_jobs.sources.embeddings import EmbeddingFiles
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.recognition.recognising import settled
from shardmill.beam_jobs.tables.features import PREFIX, features_of
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.decisions import DecisionLog
from shardmill.infra.dataset.maintenance.removed import purged_contents
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import DataError
from shardmill.infra.format.contract import SPLITS
from shardmill.infra.format.known_features import LABELS, MASK_BYTES, MASK_PIXELS
from shardmill.infra.processes.trees import free_memory_bytes
from shardmill.infra.progress import log
from shardmill.infra.storage.filesystem import Storage

SAMPLE_IMAGES = 48
SAMPLE_SECONDS = 5.0  # processor time of the sample
_SAMPLE_BLOCK = 6  # files

_STARTUP_SECONDS = 4.0  # to load libraries and start Beam's two jobs
# Two workers of one process do not do quite twice the work of one, and assembling comes after encoding.
_EFFICIENCY = 0.75


@dataclass(frozen=True, slots=True)
class Sample:
    """Figures of the conversion of a sample of files.

    Attributes:
        num_images: files tried.
        num_stored: how many of these have a stored form.
        stored_bytes: mean size of a stored image (bytes); 0 if there is none.
        seconds: a file, on average.
        left_out: reason -> files without a stored form.
        first: facts of the first files of the listing, in its order; None: nothing was read.
        warnings: why the run would stop at the samples of these files, and what of them is left out.
    """

    num_images: int
    num_stored: int
    stored_bytes: float
    seconds: float
    left_out: dict[str, int] = field(default_factory=dict)
    first: pa.Table | None = None
    warnings: tuple[str, ...] = ()


def dry_run(request: JobRequest) -> dict[str, Any]:
    """Foresee a run.

    Returns:
        What ``--dry-run --json`` prints.

    Raises:
        ShardmillError: whatever would end the run before its first image.
    """
    request = settled(request)
    config = request.config
    check_runner(config.runner, (request.source, request.root))
    source = open_source(request)
    listing = list_inputs(source, config)
    references = listing.to_read()
    too_little = too_little_memory(config, listing.table, free_memory_bytes())
    is_sampled = not fetches(config)
    sample = _take_sample(references, source, config) if is_sampled else Sample(0, 0, 0.0, 0.0)
    by_quality = "what filter.quality leaves out is known when all images are read" * bool(
        config.filter.quality
    )
    catalog = Catalog(request.root)
    decisions = DecisionLog(catalog.dataset_storage(request.dataset)).read()
    decided = Decided.of(decisions.changing, config)
    further = (too_little, by_quality, *sample.warnings, *decided.warnings(listing.table))
    warnings = [*listing.warnings, *filter(None, further)]
    for warning in warnings:
        log(warning, level="warning")
    newest = catalog.latest(request.dataset)
    embeddings = EmbeddingFiles.of(source, config.groups.embeddings)
    digests = Digests.of(source.uri, listing, config, embeddings, decided.digest)
    unchanged = newest is not None and newest.manifest.source_digest == digests.source
    splits = _foresee_splits(references, sample, config)
    stored = sum(split["num_bytes"] for split in splits.values())
    status = listing.table["status"]
    num_known = _count_known(newest, references, digests, source, config)
    num_new = references.num_rows - num_known
    new_bytes = round(stored * num_new / max(1, references.num_rows))
    working = sample.seconds * num_new / num_processes(config.runner) / _EFFICIENCY
    return {
        "dry_run": True,
        "dataset": request.dataset,
        "next_version": catalog.next_version(request.dataset),
        "unchanged": unchanged,
        "source": source.uri,
        "source_kind": config.source.kind,
        "settings_changed": {} if newest is None else config.changes_since(newest.manifest.config),
        "num_inputs": listing.table.num_rows,
        "num_to_read": num_new,
        "num_known": num_known,
        "num_filtered": pc.sum(pc.equal(status, Status.FILTERED)).as_py() or 0,
        "num_quarantined": pc.sum(pc.equal(status, Status.QUARANTINED)).as_py() or 0,
        "source_bytes": pc.sum(references["size_bytes"]).as_py() or 0,
        "left_out": class_counts(listing.table["reason"].drop_null()),
        "first_inputs": _understood(references, sample.first, list(config.source.masks.classes)),
        "label_kind": config.source.label_kind,
        "classes": label_counts(references),
        "features": {feature.name: str(feature) for feature in features_of(references)},
        "splits": splits,
        "container": config.shards.container,
        # While the shards are written, the spool still holds every stored image.
        "disk_bytes": new_bytes,
        "peak_disk_bytes": 2 * new_bytes,
        "seconds": 0.0 if unchanged else round(_STARTUP_SECONDS + working, 1),
        "sampled": is_sampled,  # if not, sizes and seconds are not known
        "sample": {
            "num_images": sample.num_images,
            "num_stored": sample.num_stored,
            "left_out": sample.left_out,
            "stored_bytes": round(sample.stored_bytes),
            "images_per_second": round(1 / sample.seconds, 1) if sample.seconds else 0.0,
        },
        "warnings": warnings,
    }


def _count_known(
    newest: DatasetVersion | None,
    references: pa.Table,
    digests: Digests,
    source: SourceFolder,
    config: PrepareConfig,
) -> int:
    """Return the number of files that need not be read, because the newest version knows them."""
    if newest is None:
        return 0
    previous = PreviousVersion(newest, reuse_of(newest.manifest, config, source.uri, digests.builds))
    purged = DigestList.of(purged_contents(newest.storage))
    return int(find_known_files(previous, references, purged, config).mask.sum())


def _take_sample(references: pa.Table, source: SourceFolder, config: PrepareConfig) -> Sample:
    """Encode a few files into a temporary folder, in one process, for a few seconds at most.

    Args:
        references: REFERENCE_SCHEMA and more.
        source: holds the files.
        config: how images are stored.
    """
    uris = (uri for chunk in references["uri"].chunks for uri in chunk.to_pylist())
    hashed = ((zlib.crc32(uri.encode()), row) for row, uri in enumerate(uris))
    first = range(min(_FIRST_INPUTS, references.num_rows) if has_masks(references) else 0)
    by_hash = [row for _, row in heapq.nsmallest(SAMPLE_IMAGES, hashed)]
    chosen = pa.array(dict.fromkeys([*first, *by_hash]), pa.int64())
    rows = references.select(reference_schema(references).names).take(chosen).combine_chunks()
    starts = range(0, rows.num_rows, _SAMPLE_BLOCK)
    parts = [rows.slice(start, _SAMPLE_BLOCK) for start in starts]
    blocks = [
        Block(block_digest(part), start, part.num_rows) for start, part in zip(starts, parts, strict=True)
    ]
    with tempfile.TemporaryDirectory(prefix="shardmill-sample-") as folder:
        spool = Storage.at(folder)
        write_references(spool, rows, blocks)
        KnownContents().write(spool)
        make_readable(source, config, rows, spool)
        reader = open_reader(source, config, spool)
        seconds = _encode_for_a_while(EncodeBlocks(reader, spool, config), len(blocks))
        facts = [read_facts(spool, block) for block in blocks[: len(seconds)]]
        further = further_pictures(spool, blocks, config.image)
    stored = [length for table in facts for length in _stored_bytes(table) if length is not None]
    num_images = sum(table.num_rows for table in facts)
    # The first block waits for libraries to load.
    timed, num_timed = seconds, num_images
    if len(seconds) > 1:
        timed, num_timed = seconds[1:], num_images - blocks[0].length
    return Sample(
        num_images,
        len(stored),
        sum(stored) / len(stored) if stored else 0.0,
        sum(timed) / num_timed if num_timed else 0.0,
        class_counts(pa.chunked_array([table["reason"] for table in facts], pa.string()).drop_null()),
        facts[0] if first and facts else None,
        tuple(filter(None, (_differ(facts), further))),
    )


def _differ(facts: Iterable[pa.Table]) -> str | None:
    """Return the error of images whose samples differ, where the settings keep those of the files."""
    try:
        samples_of(table.schema for table in facts)
    except DataError as error:
        return f"{error.message}: {error.remedy}"
    return None


def _stored_bytes(facts: pa.Table) -> list[int | None]:
    """Return the bytes of each stored image with its mask; None for those that are not stored."""
    lengths = facts["stored_bytes"]
    if PREFIX + MASK_BYTES in facts.schema.names:
        lengths = pc.add(lengths, facts[PREFIX + MASK_BYTES])
    return cast(list[int | None], lengths.to_pylist())


def _encode_for_a_while(task: EncodeBlocks, num_blocks: int) -> list[float]:
    """Encode blocks one by one, for SAMPLE_SECONDS of processor time; returns the seconds of each."""
    seconds: list[float] = []
    cpu_seconds = 0.0  # other work of the machine, and files that hang, do not make the sample smaller
    pool = Pool(task, processes=1)
    try:
        for number in range(num_blocks):
            started = time.monotonic()
            cpu_seconds += pool.submit(number).result()
            seconds.append(time.monotonic() - started)
            if cpu_seconds > SAMPLE_SECONDS:
                break
    except ItemFailed as error:
        raise recover_fault(error) or error from error
    finally:
        pool.close()
    return seconds


def _foresee_splits(references: pa.Table, sample: Sample, config: PrepareConfig) -> dict[str, dict[str, Any]]:
    """Split -> examples, shards, bytes and classes, were every file a record."""
    counts: dict[str, dict[str, int]] = {split: {} for split in SPLITS}
    has_classes = config.source.label_kind == "class"
    if not has_classes:  # other labels are divided only when the version is planned
        one = pa.array(["all"] * references.num_rows)
        references = pa.table({"split": references["split"], "label": one})
    for split in SPLITS:
        counts[split] = class_counts(references.filter(pc.equal(references["split"], split))["label"])
    free = class_counts(references.filter(pc.is_null(references["split"]))["label"])
    seats = divide_by_fractions(np.array(list(free.values()), np.int64), config.splits.fractions())
    for name, row in zip(free, seats.tolist(), strict=True):
        for split, seat in zip(SPLITS, row, strict=True):
            if seat:
                counts[split][name] = counts[split].get(name, 0) + seat
    foreseen = {}
    for split, class_count in counts.items():
        num_examples = sum(class_count.values())
        if num_examples:
            num_bytes = round(num_examples * (sample.stored_bytes + RECORD_OVERHEAD_BYTES))
            foreseen[split] = {
                "num_examples": num_examples,
                "num_shards": num_shards(num_examples, num_bytes, config.shards),
                "num_bytes": num_bytes,
                "class_counts": class_count if has_classes else {},
            }
    return foreseen


_FIRST_INPUTS = 3


_SAID = ["uri", "label", "split", "group"]


def _understood(references: pa.Table, facts: pa.Table | None, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the first inputs, JSON-able.

    Args:
        references: REFERENCE_SCHEMA and more.
        facts: FACTS_SCHEMA and more, of the first of them; None: nothing was read.
        classes: names of the classes of masks, by number.

    Returns:
        ``uri``, ``label``, ``split`` and ``group``. Of images with masks also ``mask``, its URI; if both were
        read ``height`` and ``width`` of the stored image, and ``shares``, class -> share of its pixels; or
        the ``problem`` for which it would be left out.
    """
    first = references.slice(0, _FIRST_INPUTS)
    if not has_masks(references):
        rows: list[dict[str, Any]] = first.select(_SAID).to_pylist()
        return rows
    rows = first.select([*_SAID, MASK_COLUMNS[0].name]).to_pylist()
    read = [] if facts is None else facts.slice(0, _FIRST_INPUTS).to_pylist()
    for at, row in enumerate(rows):
        row["mask"] = row.pop(MASK_COLUMNS[0].name)
        if at < len(read):
            row |= _of_mask(read[at], classes)
    return rows


def _of_mask(fact: dict[str, Any], classes: Sequence[str]) -> dict[str, Any]:
    """Describe the classes in the mask of an image, or the fault that was found."""
    if fact["reason"] is not None:
        return {"problem": f"{fact['reason']}: {fact['message']}"}
    if fact[PREFIX + LABELS] is None:  # the newest version has it
        return {}
    pixels = fact["height"] * fact["width"]
    counts = zip(fact[PREFIX + LABELS], fact[PREFIX + MASK_PIXELS], strict=True)
    shares = {classes[number]: round(count / pixels, 4) for number, count in counts}
    return {"height": fact["height"], "width": fact["width"], "shares": shares}
