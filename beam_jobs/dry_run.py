"""``--dry-run``: what would come out, and what it would cost, before anything is done. Writes nothing.

Counts are those of the listing: duplicates and broken files show only when all is read. Sizes and times are
measured on a small sample of the files, chosen by the hash of their URIs, and scaled up.

``python -m beam_jobs.dry_run`` is what ``beam_jobs.prepare --dry-run`` starts as a child, since a file of the
sample may bring a decoder down.
"""

from __future__ import annotations

import hashlib
import heapq
import os
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.config import PrepareConfig
from beam_jobs.contents import DigestList
from beam_jobs.digests import Digests
from beam_jobs.guard.attempts import adopt_guard, guarded_block
from beam_jobs.guard.verdicts import known_verdicts
from beam_jobs.images import LIBRARY_FAULTS, ImageFiltered, convert
from beam_jobs.known import Parent
from beam_jobs.outcome import class_counts
from beam_jobs.plan import RECORD_OVERHEAD_BYTES, num_shards
from beam_jobs.plan.splits import apportion
from beam_jobs.request import JobRequest, given_request
from beam_jobs.reuse import retried_reasons, reuse_of
from beam_jobs.runners import check_runner, num_workers
from beam_jobs.sources import list_inputs, open_source
from beam_jobs.sources.folder import SourceFault, SourceFolder
from infra.catalog import Catalog, DatasetVersion
from infra.codecs import ImageRejected
from infra.contract import FILTERED, QUARANTINED, SPLITS
from infra.process import run_main
from infra.progress import log, result
from infra.purged import purged_contents

SAMPLE_IMAGES = 48
SAMPLE_SECONDS = 5.0

_STARTUP_SECONDS = 2.0  # of the child, its libraries and Beam's two jobs
# Two workers of one process do not do quite twice the work of one, and assembling comes after encoding.
_EFFICIENCY = 0.75


@dataclass(frozen=True, slots=True)
class Sample:
    """What converting a few files showed.

    Attributes:
        num_images: files tried.
        num_stored: of these, how many have a stored form.
        stored_bytes: of a stored image, on average; 0 where there is none.
        seconds: a file, on average.
    """

    num_images: int
    num_stored: int
    stored_bytes: float
    seconds: float


def dry_run(request: JobRequest) -> dict[str, Any]:
    """Foresee a run.

    Returns:
        What ``--dry-run --json`` prints.

    Raises:
        ShardmillError: whatever would end the run before its first image.
    """
    config = request.config
    check_runner(config.runner)
    source = open_source(request)
    listing = list_inputs(source, config)
    for warning in listing.warnings:
        log(warning, level="warning")
    references = listing.to_read()
    with _quiet():
        sample = take_sample(references, source, config)
    catalog = Catalog(request.root)
    newest = catalog.latest(request.dataset)
    digests = Digests.of(source.uri, listing, config)
    unchanged = newest is not None and newest.manifest.source_digest == digests.source
    splits = foresee_splits(references, sample, config)
    stored = sum(split["num_bytes"] for split in splits.values())
    outcomes = listing.table["outcome"]
    num_known = count_known(newest, references, digests, source, config)
    num_new = references.num_rows - num_known
    new_bytes = round(stored * num_new / max(1, references.num_rows))
    working = sample.seconds * num_new / num_workers(config.runner) / _EFFICIENCY
    return {
        "dry_run": True,
        "dataset": request.dataset,
        "next_version": catalog.next_version(request.dataset),
        "unchanged": unchanged,
        "source": source.uri,
        "num_inputs": listing.table.num_rows,
        "num_to_read": num_new,
        "num_known": num_known,
        "num_filtered": pc.sum(pc.equal(outcomes, FILTERED)).as_py() or 0,
        "num_quarantined": pc.sum(pc.equal(outcomes, QUARANTINED)).as_py() or 0,
        "source_bytes": pc.sum(references["size_bytes"]).as_py() or 0,
        "classes": class_counts(references["label"]),
        "splits": splits,
        "container": config.shards.container,
        # While the shards are written, the spool still holds every stored image.
        "disk_bytes": new_bytes,
        "peak_disk_bytes": 2 * new_bytes,
        "seconds": 0.0 if unchanged else round(_STARTUP_SECONDS + working, 1),
        "sample": {
            "num_images": sample.num_images,
            "num_stored": sample.num_stored,
            "stored_bytes": round(sample.stored_bytes),
            "images_per_second": round(1 / sample.seconds, 1) if sample.seconds else 0.0,
        },
        "warnings": listing.warnings,
    }


def count_known(
    newest: DatasetVersion | None,
    references: pa.Table,
    digests: Digests,
    source: SourceFolder,
    config: PrepareConfig,
) -> int:
    """How many of the files the newest version knows, so that they are not read."""
    if newest is None:
        return 0
    parent = Parent(newest, reuse_of(newest.manifest, config, source.uri, digests.builds))
    purged = DigestList.of(purged_contents(newest.storage))
    known, _ = parent.known_files(references, purged, retried_reasons(newest.manifest, config))
    return int(known.sum())


def take_sample(references: pa.Table, source: SourceFolder, config: PrepareConfig) -> Sample:
    """Convert a few files in memory, in one thread, for a few seconds at most."""
    uris = (uri for chunk in references["uri"].chunks for uri in chunk.to_pylist())
    hashed = ((zlib.crc32(uri.encode()), row) for row, uri in enumerate(uris))
    chosen = pa.array([row for _, row in heapq.nsmallest(SAMPLE_IMAGES, hashed)], pa.int64())
    rows = references.select(["uri", "size_bytes", "mtime_ns"]).take(chosen).to_pylist()
    started = time.monotonic()
    tried, stored, num_bytes = 0, 0, 0
    with guarded_block(source, None, config, known_verdicts(None, config.runner)) as guard:
        for row in rows:
            tried += 1
            try:
                data = source.read(**row)
                work = partial(convert, data, config.image, config.filter)
                num_bytes += len(guard.run(work, hashlib.sha256(data).digest(), **row).image)
                stored += 1
            except (SourceFault, ImageRejected, ImageFiltered, *LIBRARY_FAULTS):
                pass  # counted by what is missing from `stored`
            if time.monotonic() - started > SAMPLE_SECONDS:
                break
    seconds = time.monotonic() - started
    return Sample(tried, stored, num_bytes / stored if stored else 0.0, seconds / tried if tried else 0.0)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep standard error from libraries in C, which print there what they think of a damaged image."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def foresee_splits(references: pa.Table, sample: Sample, config: PrepareConfig) -> dict[str, dict[str, Any]]:
    """Split -> examples, shards, bytes and classes, were every file a record."""
    counts: dict[str, dict[str, int]] = {split: {} for split in SPLITS}
    for split in SPLITS:
        counts[split] = class_counts(references.filter(pc.equal(references["split"], split))["label"])
    free = class_counts(references.filter(pc.is_null(references["split"]))["label"])
    seats = apportion(np.array(list(free.values()), np.int64), config.splits.fractions())
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
                "class_counts": class_count,
            }
    return foreseen


def main() -> int:
    """Foresee the run that standard input describes; what is foreseen is an event (infra.progress)."""
    adopt_guard()
    result(dry_run(given_request()))
    return 0


if __name__ == "__main__":
    sys.exit(run_main(main))
