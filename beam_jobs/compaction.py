"""Compaction: the newest version written anew as a whole, in as few shards as do, all in balance.

Many ingests leave many shards, each in balance with those of its own ingest only. Compaction deals all
records again and copies them; nothing is read from the source, nothing decoded, and what the version holds
stays.

``python -m beam_jobs.compaction`` is what ``shardmill compact`` starts as a child.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from beam_jobs.accounting import check_shards
from beam_jobs.config import PrepareConfig, RunnerConfig
from beam_jobs.known import Parent, Reuse
from beam_jobs.plan import PlannedShard, num_shards
from beam_jobs.plan.hashing import digest_bytes, record_ids
from beam_jobs.plan.shards import deal
from beam_jobs.reuse import config_of
from beam_jobs.sources.listing import table_digest
from beam_jobs.spools import RunClaim
from beam_jobs.stages import Copying, assemble_shards, lay_out
from beam_jobs.versions import shards_of_plan
from infra.catalog import Catalog, DatasetVersion
from infra.contract import Manifest, Shard, check_dataset_name, data_dir, spool_dir, summarise_splits
from infra.digests import digest_of
from infra.errors import ConfigError, CorruptDataError, PublishConflict
from infra.process import run_main
from infra.progress import result, stage

_ATTEMPTS = 10
_HEAL = "delete that shard and prepare the same source again: what is missing is then read from the source"


@dataclass(frozen=True)
class _Assembly:
    """All records of a version, dealt again (beam_jobs.plan.shards.Assembly)."""

    records: pa.Table
    shards: list[PlannedShard]
    classes: list[str]

    def records_of(self, shard: PlannedShard) -> pa.Table:
        """PLAN_SCHEMA, in stored order."""
        return self.records.slice(shard.start, shard.length)


def compact(catalog: Catalog, name: str) -> dict[str, Any]:
    """Publish the newest version again, compacted; or find that it is compact.

    Returns:
        What ``--json`` prints.

    Raises:
        NotFoundError: there is no such dataset. ConfigError: an unlike release wrote it.
        CorruptDataError: a shard is damaged. LockedError: another process compacts it.
    """
    before = catalog.open(name)
    if is_compact(before):
        return _outcome(before, before, unchanged=True)
    run = digest_of(["compact", check_dataset_name(name)])
    with RunClaim(catalog, name, run) as claim:
        claim.take()
        for _ in range(_ATTEMPTS):
            before = catalog.open(name)
            with suppress(PublishConflict):
                after = _compacted(catalog, before, run)
                claim.clear()
                return _outcome(before, after, unchanged=False)
    raise PublishConflict(f"other writers keep publishing versions of {name}", "run again")


def is_compact(version: DatasetVersion) -> bool:
    """Whether one plan wrote all shards of the version, as many as its settings ask for."""
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
            f"the settings of {version.ref} are not those of this release",
            "prepare its source again with this release first",
        )
    # Copying is this machine's work; a job server that the version was once prepared on may be gone.
    return config.model_copy(update={"runner": RunnerConfig()})


def _compacted(catalog: Catalog, before: DatasetVersion, run: str) -> DatasetVersion:
    from beam_jobs.report import write_report  # its template engine is needed here only

    manifest, config = before.manifest, _settings(before)
    parent = Parent(before, Reuse(contents=True, uris=False, shards=False))
    if not parent.is_whole:
        missing = ", ".join(before.missing_files()[:3]) or "an index"
        raise CorruptDataError(f"{before.ref} is not whole: {missing} is not as it was written", _HEAL)
    assembly = _deal_again(parent, config)
    storage = before.storage
    spool = storage.child(spool_dir(run))
    digest = digest_of(["compact", manifest.plan_digest, *_content(assembly), manifest.container])
    copying = Copying(storage, spool, digest, [], before)
    layout = lay_out(assembly, copying, parent, shards_of_plan(catalog, before.name, digest))
    del assembly, parent
    try:
        shards, _ = assemble_shards(layout, copying, manifest.container, config)
    except CorruptDataError as error:
        raise CorruptDataError(error.message, _HEAL) from error
    check_shards(shards, manifest.accounting)
    stage("publish", unit="versions")
    storage.sweep(data_dir(digest))
    after = _manifest(manifest, digest, shards)
    return catalog.publish(after.model_copy(update={"report": write_report(storage, after)}))


def _deal_again(parent: Parent, config: PrepareConfig) -> _Assembly:
    records, splits = parent.all_records()
    dealt = deal(
        record_ids(digest_bytes(records["sha256"])),
        records["label"].to_numpy().astype(np.int64),
        splits,
        records["stored_bytes"].to_numpy(),
        config,
    )
    in_order = records.take(pa.array(dealt.order)).combine_chunks()
    return _Assembly(in_order, dealt.shards, parent.version.manifest.classes)


def _content(assembly: _Assembly) -> list[Any]:
    """What tells one compaction from another."""
    return [
        table_digest(assembly.records.drop_columns(["block", "offset_bytes"])),
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
    """Compact a dataset; the result is an event (infra.progress)."""
    parser = argparse.ArgumentParser(prog="python -m beam_jobs.compaction", description=__doc__)
    parser.add_argument("--root", required=True, help="folder of the datasets")
    parser.add_argument("--dataset", required=True, help="its name")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.ERROR)  # Beam warns of every optional library that is not there
    result(compact(Catalog(arguments.root), arguments.dataset))
    return 0


if __name__ == "__main__":
    sys.exit(run_main(main))
