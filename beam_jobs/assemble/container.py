"""The container of the shards: as configured, or chosen by the sizes of a sample.

``auto`` packs a sample of the records, chosen by a hash of their ids, in both ways, and takes gzip if it
saves enough. Only sizes decide, never timings: the same records give the same container on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from shardmill.beam_jobs.assemble.copying import image_and_mask
from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.encode.blocks import spool_file
from shardmill.beam_jobs.plan import AnyPlan
from shardmill.beam_jobs.reuse.previous import PreviousVersion
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.format.examples import ImageRecord, build_example
from shardmill.infra.format.features import feature_values
from shardmill.infra.format.known_features import MASK_BYTES, class_name
from shardmill.infra.format.records import Container, pack_record
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.storage.range_reader import RangeReader

SAMPLE_RECORDS = 256

# A smaller saving is not worth inflating each record whenever it is read: 0.05 to 0.1 ms, beside about 1 ms
# to decode a photograph. JPEG, PNG and WebP save 0 to 2 %, raw pixels 20 to 60 %.
WORTHWHILE_SAVING = 0.05


@dataclass(frozen=True, slots=True)
class ContainerChoice:
    """A container, and why."""

    container: Container
    reason: str


def choose_container(
    config: PrepareConfig,
    plan: AnyPlan,
    spool: Storage,
    block_digests: Sequence[str],
    previous: PreviousVersion | None = None,
) -> ContainerChoice:
    """Choose the container of a plan's shards: as configured, as in the previous version, or by a sample.

    Args:
        config: names a container, or says "auto".
        plan: the plan.
        spool: holds the images of its records.
        block_digests: digest of each block, by its number.
        previous: the version whose container is kept while its stored images are.
    """
    if config.shards.container != "auto":
        return ContainerChoice(config.shards.container, "as configured")
    if previous is not None and previous.reuse.contents:
        version = previous.version
        return ContainerChoice(version.manifest.container, f"auto: as {version.ref} has it")
    sample = plan.planned.sample(SAMPLE_RECORDS, config.seed)
    with closing(RangeReader(spool)) as images:
        examples = [
            _example(row, plan, config.image.channels, spool_file(block_digests[row["block"]]), images)
            for row in sample.to_pylist()
        ]
    return decide(examples)


def _example(row: Mapping[str, Any], plan: AnyPlan, channels: int, block: str, images: RangeReader) -> bytes:
    """Build the example of a planned record, a row of PLAN_SCHEMA and columns of features."""
    features = feature_values(plan.features, {name.removeprefix(PREFIX): row[name] for name in row})
    length = row["stored_bytes"] + row.get(PREFIX + MASK_BYTES, 0)
    image, mask = image_and_mask(images.read(block, row["offset_bytes"], length), features)
    name = class_name(plan.classes, row["label"])
    size = row["height"], row["width"], channels
    return build_example(ImageRecord(row["id"], image, row["label"], name, *size, mask), features)


def decide(examples: Iterable[bytes]) -> ContainerChoice:
    """Choose gzip if it saves enough on these serialised examples, else none."""
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
