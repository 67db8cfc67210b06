"""Compaction: write the newest version again, in as few shards as its settings ask for, all balanced.

Many ingests leave many shards, each balanced only with those of its own ingest. Compaction deals all records
again and copies them. It reads nothing from the source, decodes nothing, and keeps the content of the
version.

``python -m shardmill.beam_jobs.maintain.compaction`` is what ``shardmill compact`` starts as a child.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.assemble.stage import Copying, assemble_shards, lay_out
from shardmill.beam_jobs.config import PrepareConfig, RunnerConfig
from shardmill.beam_jobs.plan import PlannedShard, num_shards
from shardmill.beam_jobs.plan.shards import RecordsToDeal, deal
from shardmill.beam_jobs.plan.splits_by_kind import dealing_strata
from shardmill.beam_jobs.publish.accounting import check_shards
from shardmill.beam_jobs.publish.versions import publish_manifest, shards_of_plan
from shardmill.beam_jobs.reuse.previous import PreviousVersion, Reuse, config_of
from shardmill.beam_jobs.spool import RunClaim
from shardmill.beam_jobs.tables.columns import take_rows
from shardmill.beam_jobs.tables.ids import digest_bytes, record_ids, table_digest
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.publishing import publish_on_newest
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import ConfigError, CorruptDataError
from shardmill.infra.format.contract import Manifest, Shard, summarise_splits
from shardmill.infra.format.features import Feature
from shardmill.infra.format.layout import spool_dir
from shardmill.infra.processes.process import run_main
from shardmill.infra.processes.turns import Turn
from shardmill.infra.progress import result
from shardmill.infra.storage.locations import check_dataset_name

_HEAL = "delete that shard and prepare the same source again, which reads the missing images from the source"


@dataclass(frozen=True)
class _Assembly:
    """All records of a version, dealt again. Implements shardmill.beam_jobs.plan.shards.Assembly."""

    records: pa.Table
    shards: list[PlannedShard]
    classes: list[str]
    features: list[Feature]

    def records_of(self, shard: PlannedShard) -> pa.Table:
        """Return the records of a shard in stored order: PLAN_SCHEMA and columns of features."""
        return self.records.slice(shard.start, shard.length)


def compact(catalog: Catalog, name: str) -> dict[str, Any]:
    """Publish the newest version again, compacted, unless it is compact already.

    Returns:
        What ``--json`` prints.

    Raises:
        NotFoundError: there is no such dataset. ConfigError: this release does not understand its settings.
        CorruptDataError: a shard is damaged. LockedError: another process compacts it.
    """
    before = catalog.open(name)
    if is_compact(before):
        return _outcome(before, before, unchanged=True)
    run = digest_of(["compact", check_dataset_name(name)])
    with RunClaim(catalog, name, run) as claim, Turn(f"compact {name}") as turn:
        turn.take()
        claim.take()
        before, after = publish_on_newest(name, lambda: _compact_newest(catalog, name, run))
        claim.clear()
    return _outcome(before, after, unchanged=False)


def _compact_newest(catalog: Catalog, name: str, run: str) -> tuple[DatasetVersion, DatasetVersion]:
    """Compact the newest version; returns it and the new one."""
    before = catalog.open(name)
    return before, _compacted(catalog, before, run)


def is_compact(version: DatasetVersion) -> bool:
    """Return whether one plan wrote all shards of the version, no more than its settings ask for."""
    manifest, config = version.manifest, _settings(version)
    folders = {shard.path.rpartition("/")[0] for shard in manifest.shards}
    return len(folders) <= 1 and all(
        split.num_shards <= num_shards(split.num_examples, split.num_bytes, config.shards)
        for split in manifest.splits.values()
    )


def _settings(version: DatasetVersion) -> PrepareConfig:
    config = config_of(version.manifest)
    if config is None:
        raise ConfigError(
            f"the settings of {version.ref} were written by another release",
            "prepare its source again with this release first",
        )
    # Records are copied on this machine; the job server that prepared the version may be gone.
    return config.model_copy(update={"runner": RunnerConfig()})


def _compacted(catalog: Catalog, before: DatasetVersion, run: str) -> DatasetVersion:
    manifest, config = before.manifest, _settings(before)
    previous = PreviousVersion(before, Reuse(contents=True, uris=False, shards=False))
    if not previous.is_whole:
        missing = ", ".join(before.missing_files()[:3]) or "an index"
        raise CorruptDataError(f"{before.ref} is not whole: {missing} is not as it was written", _HEAL)
    assembly = _deal_again(previous, config)
    storage = before.storage
    spool = storage.child(spool_dir(run))
    digest = digest_of(["compact", manifest.plan_digest, *_content(assembly), manifest.container])
    copying = Copying(storage, spool, digest, [], before)
    layout = lay_out(assembly, copying, previous, shards_of_plan(catalog, before.name, digest))
    del assembly, previous
    try:
        shards = assemble_shards(
            layout, copying, manifest.container, manifest.samples.channels, config.runner
        ).shards
    except CorruptDataError as error:
        raise CorruptDataError(error.message, _HEAL) from error
    check_shards(shards, manifest.accounting)
    return publish_manifest(catalog, _manifest(manifest, digest, shards))


def _deal_again(previous: PreviousVersion, config: PrepareConfig) -> _Assembly:
    records, splits = previous.all_records()
    kind, labels = previous.version.manifest.label_kind, records["label"].to_numpy()
    dealt = deal(
        RecordsToDeal(
            ids=record_ids(digest_bytes(records["sha256"])),
            labels=labels,
            strata=dealing_strata(kind, records, np.arange(len(labels), dtype=np.int32), labels),
            splits=splits,
            stored_bytes=records["stored_bytes"].to_numpy(),
        ),
        config,
    )
    in_order = take_rows(records, pa.array(dealt.order)).combine_chunks()
    return _Assembly(in_order, dealt.shards, previous.version.manifest.classes, previous.features)


def _content(assembly: _Assembly) -> list[Any]:
    """Return values that differ between any two compactions with different results."""
    return [
        table_digest(assembly.records.drop_columns(["block", "shard", "offset_bytes"])),
        [[shard.split, shard.index, shard.count, shard.length] for shard in assembly.shards],
    ]


def _manifest(before: Manifest, digest: str, shards: Sequence[Shard]) -> Manifest:
    return before.model_copy(
        update={
            "version": before.version + 1,
            "parent": before.version,
            "restores": None,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "plan_digest": digest,
            "shards": list(shards),
            "splits": summarise_splits(shards),
            "report": None,
        }
    )


def _outcome(before: DatasetVersion, after: DatasetVersion, *, unchanged: bool) -> dict[str, Any]:
    return {
        "dataset": after.name,
        "version": after.version,
        "unchanged": unchanged,
        "num_records": after.manifest.accounting.num_records,
        "num_shards_before": len(before.manifest.shards),
        "num_shards": len(after.manifest.shards),
        "num_bytes": sum(shard.num_bytes for shard in after.manifest.shards),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Compact a dataset; the result is an event (shardmill.infra.progress)."""
    parser = argparse.ArgumentParser(
        prog="python -m shardmill.beam_jobs.maintain.compaction", description=__doc__
    )
    parser.add_argument("--root", required=True, help="folder of the datasets")
    parser.add_argument("--dataset", required=True, help="its name")
    parser.add_argument("--signing-key", help="file with the private key that signs the new version")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.ERROR)  # Beam warns of every optional library that is not there
    result(compact(Catalog(arguments.root, arguments.signing_key), arguments.dataset))
    return 0


if __name__ == "__main__":
    sys.exit(run_main(main))
