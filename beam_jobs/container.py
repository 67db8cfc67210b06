"""Which container the shards get: as configured, or what the sizes of a sample say.

``auto`` packs a sample of the records both ways, chosen by a hash of their ids, and takes gzip where it saves
enough. Sizes alone decide, never timings: the same records give the same container on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from beam_jobs.blocks import spool_file
from beam_jobs.config import PrepareConfig
from beam_jobs.plan import Plan
from beam_jobs.plan.hashing import SAMPLE, hash_ranks
from infra.examples import ImageRecord, build_example
from infra.ranges import RangeReader
from infra.records import Container, pack_record
from infra.storage import Storage

SAMPLE_RECORDS = 256

# Less is not worth inflating each record at every reading of it: 0.05 to 0.1 ms, beside about 1 ms for
# decoding a photograph. JPEG, PNG and WebP save 0 to 2 %, raw pixels 20 to 60 %.
WORTHWHILE_SAVING = 0.05


@dataclass(frozen=True, slots=True)
class ContainerChoice:
    """A container, and why."""

    container: Container
    reason: str


def choose_container(
    config: PrepareConfig, plan: Plan, spool: Storage, block_digests: Sequence[str]
) -> ContainerChoice:
    """The container that the shards of a plan get.

    Args:
        config: says which, or auto.
        plan: its records.
        spool: where their images are.
        block_digests: of each block, by its number.
    """
    if config.shards.container != "auto":
        return ContainerChoice(config.shards.container, "as configured")
    ids = plan.planned.ids()
    ranks = hash_ranks(ids, config.seed, SAMPLE)
    count = min(SAMPLE_RECORDS, len(ranks))
    chosen = np.argpartition(ranks, count - 1)[:count] if count else np.empty(0, np.int64)
    sample = plan.planned.take(np.sort(chosen))
    with closing(RangeReader(spool)) as images:
        examples = [
            build_example(
                ImageRecord(
                    row["id"],
                    images.read(
                        spool_file(block_digests[row["block"]]), row["offset_bytes"], row["stored_bytes"]
                    ),
                    row["label"],
                    plan.classes[row["label"]],
                    row["height"],
                    row["width"],
                    config.image.channels,
                )
            )
            for row in sample.to_pylist()
        ]
    return decide(examples)


def decide(examples: Iterable[bytes]) -> ContainerChoice:
    """gzip where it saves enough of these examples (serialised), none otherwise."""
    count = plain = packed = 0
    for example in examples:
        count += 1
        plain += len(pack_record(example, "none"))
        packed += len(pack_record(example, "gzip"))
    if not count:
        return ContainerChoice("none", "auto: there is no record to try")
    saving = 1 - packed / plain
    records = "the one record" if count == 1 else f"{count} sampled records"
    changes = f"saves {saving:.1%}" if saving >= 0 else f"adds {-saving:.1%}"
    found = f"auto: gzip {changes} of {records}"
    if saving >= WORTHWHILE_SAVING:
        return ContainerChoice("gzip", found)
    return ContainerChoice("none", f"{found}; {WORTHWHILE_SAVING:.0%} would be worth inflating them")
