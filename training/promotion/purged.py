"""Find the runs that learned from records which a purge removes, and mark their folders for good."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import TypedDict

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.dataset.views.references import parse_joined
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import NotFoundError
from shardmill.infra.format.contract import SPLITS, Shard
from shardmill.infra.json_files import open_shape, read_json
from shardmill.infra.readable import counted
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json
from shardmill.training.aliases.history import aliases_by_run
from shardmill.training.aliases.record import now
from shardmill.training.results.run_files.run_folder import list_runs

PURGED_FILE = "purged.json"


@dataclass(frozen=True, slots=True)
class AffectedRun:
    """A run whose dataset version has records that a purge removes.

    Attributes:
        run: its name.
        trained_on: the dataset version.
        num_learned: such records of the train split.
        num_shown: such records of the other splits: its predictions and its report may show them.
        aliases: the aliases that it has now.
    """

    run: str
    trained_on: str
    num_learned: int
    num_shown: int
    aliases: tuple[str, ...] = ()


@open_shape
class _Mark(TypedDict):
    num_learned: int


def affected_runs(
    catalog: Catalog, runs: Path, name: str, ids: Collection[str], versions: Collection[int]
) -> list[AffectedRun]:
    """Return the runs that a purge concerns, sorted by name. Call this before the purge.

    Args:
        catalog: the datasets.
        runs: the folder of the runs.
        name: name of the dataset.
        ids: ids of the records that are removed.
        versions: numbers of the versions that lose rows.
    """
    concerned = [run for run in list_runs(runs) if run.versions_of(name).intersection(versions)]
    counts = {
        ref: _count(catalog, ref, name, ids, versions) for ref in sorted({run.dataset for run in concerned})
    }
    aliases = {
        each: aliases_by_run(Storage.at(runs), each) for each in {run.dataset_name for run in concerned}
    }
    found = []
    for run in concerned:
        learned, shown = counts[run.dataset]
        if learned or shown:
            holds = tuple(aliases[run.dataset_name].get(run.name, ()))
            found.append(AffectedRun(run.name, run.dataset, learned, shown, holds))
    return found


def mark_runs(runs: Path, affected: Iterable[AffectedRun], ids: Collection[str]) -> None:
    """Note in the folder of each run how many of its records a purge removes.

    The same purge, begun again, is marked once. Neither ids nor names of the records are written.
    """
    key = digest_of(sorted(ids), length=16)
    for each in affected:
        folder = Storage.at(runs / each.run)
        marks = _read_marks(runs / each.run)
        marks.setdefault(key, cast("_Mark", {"at": now(), **asdict(each)}))
        folder.write_atomic(PURGED_FILE, dump_json(marks, indent=1).encode("ascii"))


def _read_marks(run_dir: Path) -> dict[str, _Mark]:
    """Return the purges that removed records of a run, by digest; empty if there were none.

    Raises:
        CorruptDataError: the list is damaged.
    """
    path = run_dir / PURGED_FILE
    if not path.exists():
        return {}
    return read_json(path, dict[str, _Mark], "restore it from a copy, or delete the run")


def num_purged(run_dir: Path) -> int:
    """Return how many of the records that a run learned from were purged since."""
    return sum(mark["num_learned"] for mark in _read_marks(run_dir).values())


def _shards(
    catalog: Catalog, ref: str, name: str, versions: Collection[int]
) -> Iterator[tuple[DatasetVersion, Shard]]:
    """Yield the shards of a dataset in what a reference names.

    Where another of several data sets is gone, those of ``versions``: with records that a run has left out,
    because they look the same as one of another data set.
    """
    try:
        version = catalog.open_view(ref)
    except NotFoundError:
        for part in parse_joined(ref).parts:
            if part.reference.name == name and part.reference.version in map(str, versions):
                version = catalog.open_view(str(part.reference))
                yield from ((version, one) for one in version.manifest.shards if part.has(one.split))
    else:
        shards = version.manifest.shards
        yield from ((version, one) for one in shards if version.data_set_of(one).name == name)


def _count(
    catalog: Catalog, ref: str, name: str, ids: Collection[str], versions: Collection[int]
) -> tuple[int, int]:
    """Count the records of a dataset in what a reference names: in the train split, and in the others."""
    wanted = pa.array(sorted(ids), pa.string())
    counts = dict.fromkeys(SPLITS, 0)
    for version, shard in _shards(catalog, ref, name, versions):
        found = pc.sum(pc.is_in(version.rows(shard, ["id"])["id"], wanted)).as_py()
        counts[shard.split] += int(found or 0)
    learned = counts.pop("train")
    return learned, sum(counts.values())


def in_words(run: AffectedRun) -> str:
    """Say what a run had of the removed records."""
    parts = [f"learned from {run.num_learned:,}"] if run.num_learned else []
    parts += [f"its predictions and report show {run.num_shown:,}"] if run.num_shown else []
    holds = f" ({', '.join(run.aliases)})" if run.aliases else ""
    return f"{run.run}{holds}: {'; '.join(parts)} of them"


def purged_in_words(run_dir: Path) -> str | None:
    """Say that a run learned from records that were purged since; None: it did not."""
    count = num_purged(run_dir)
    return f"trained on {counted(count, 'purged record')}" if count else None
