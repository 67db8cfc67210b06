"""Upkeep of one dataset: compaction, retention, and removal of files that no version uses.

``python -m shardmill.beam_jobs.maintain.upkeep`` is what the flow ``maintain`` starts as a child. Each step
may be killed, and the next upkeep finishes it.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from shardmill.beam_jobs.config.maintain import MaintainConfig
from shardmill.beam_jobs.maintain.compaction import compact, is_compact
from shardmill.beam_jobs.spool import clear_interrupted, interrupted_runs
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.maintenance.garbage import (
    Garbage,
    collect_garbage,
    find_garbage,
    outdated_versions,
)
from shardmill.infra.errors import ShardmillError
from shardmill.infra.processes.job_command import JobParser, settings_of
from shardmill.infra.processes.process import run_main
from shardmill.infra.progress import log, progress, result, stage
from shardmill.infra.readable import counted, readable_bytes

_STEPS = 3


def maintain(
    catalog: Catalog, name: str, config: MaintainConfig, protected: Collection[int] = ()
) -> dict[str, Any]:
    """Do what the configuration asks for.

    Args:
        catalog: the root of the dataset.
        name: name of the dataset.
        config: the settings.
        protected: versions that stay, whatever their age.

    Returns:
        The result that ``--json`` prints.

    Raises:
        NotFoundError: there is no such dataset. ShardmillError: a step failed; the others were done.
    """
    catalog.open(name)
    stage("maintain", _STEPS, unit="steps")
    done: dict[str, Any] = {"dataset": name, "dry_run": config.dry_run, "protected": sorted(protected)}
    errors: list[ShardmillError] = []
    steps: tuple[Callable[[], dict[str, Any]], ...] = (
        lambda: _compact(catalog, name, config),
        lambda: _clear_interrupted(catalog, name, config),
        lambda: _drop(catalog, name, config, protected),
    )
    for number, step in enumerate(steps, 1):
        try:
            done |= step()
        except ShardmillError as error:
            log(str(error), level="error")
            errors.append(error)
        progress("maintain", number, _STEPS, unit="steps")
    if errors:
        raise errors[0]
    return done


def _compact(catalog: Catalog, name: str, config: MaintainConfig) -> dict[str, Any]:
    newest = catalog.open(name)
    ingests = len({shard.path.rpartition("/")[0] for shard in newest.manifest.shards})
    if not config.compact or ingests < config.compact_after or is_compact(newest):
        return {"compacted": None}
    if config.dry_run:
        log(f"would compact {newest.ref}: its shards come from {ingests:,} ingests")
        return {"compacted": newest.version + 1}
    made = compact(catalog, name)
    log(f"published {name}@{made['version']}, compacted")
    return {"compacted": made["version"]}


def _clear_interrupted(catalog: Catalog, name: str, config: MaintainConfig) -> dict[str, Any]:
    if not config.remove_garbage:
        return {"interrupted": []}
    runs = interrupted_runs(catalog, name, older_than_seconds=config.abandoned_days * 86400)
    if not config.dry_run:
        runs = [run for run in runs if clear_interrupted(catalog, name, run.digest)]
    return {"interrupted": [{"run": run.digest, "num_bytes": run.num_bytes} for run in runs]}


def _drop(catalog: Catalog, name: str, config: MaintainConfig, protected: Collection[int]) -> dict[str, Any]:
    numbers = catalog.versions(name)
    created = {
        number: datetime.fromisoformat(catalog.open(f"{name}@{number}").manifest.created_at)
        for number in numbers
    }
    drop = outdated_versions(
        created,
        keep_last=config.keep_last,
        keep_days=config.keep_days,
        protected=protected,
        now=datetime.now(UTC),
    )
    if not config.remove_garbage and not drop:
        return _dropped(Garbage(name, [], numbers, [], []))
    work = find_garbage if config.dry_run else collect_garbage
    return _dropped(work(catalog, name, drop=drop))


def _dropped(garbage: Garbage) -> dict[str, Any]:
    if garbage.dropped or garbage.files:
        log(
            f"{counted(len(garbage.dropped), 'version')} and {counted(len(garbage.files), 'file')} "
            f"({readable_bytes(garbage.num_bytes)}) are no longer kept"
        )
    return {
        "dropped": garbage.dropped,
        "kept": garbage.kept,
        "num_files": len(garbage.files),
        "num_bytes": garbage.num_bytes,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Maintain a dataset; the result is an event (shardmill.infra.progress)."""
    parser = JobParser("python -m shardmill.beam_jobs.maintain.upkeep", str(__doc__), "")
    parser.add_argument("--dataset", required=True, metavar="NAME", help="name of the dataset")
    parser.add_argument(
        "--protect", action="append", type=int, default=[], metavar="VERSION", help="keep it; repeatable"
    )
    parser.add_job_arguments("maintain")
    arguments: argparse.Namespace = parser.parse_args(argv)
    config = settings_of(arguments, MaintainConfig, "maintain")
    logging.basicConfig(level=logging.ERROR)  # Beam warns of every optional library that is not there
    result(
        maintain(Catalog(arguments.root, config.signing_key), arguments.dataset, config, arguments.protect)
    )
    return 0


if __name__ == "__main__":
    sys.exit(run_main(main))
