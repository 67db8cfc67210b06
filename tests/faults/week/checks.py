"""Checks at the end of the week: nothing is lost or doubled, and the history is in order."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.results.run_files.run_folder import list_runs
from tests.faults.week.platform import Platform

_FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
_UP_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


def check_versions(platform: Platform, dataset: str) -> None:
    """No version is lost or doubled, the newest is whole, and no unfinished work is left."""
    catalog = Catalog(platform.root)
    numbers = catalog.versions(dataset)
    print(f"versions: {len(numbers)}")
    assert numbers == list(range(1, len(numbers) + 1)), "no version is lost"
    versions = [catalog.open(f"{dataset}@{number}") for number in numbers]
    parents = [version.manifest.parent for version in versions]
    assert parents == [None, *numbers[:-1]], "each version follows from the one before it"
    assert verify(versions[-1]).problems == []
    # The file of a lock stays for ever (shardmill.beam_jobs.spool).
    left = [path for path in (platform.root / dataset).glob("spool/*") if path.suffix != ".lock"]
    assert left == [], "no unfinished work is left"


def check_same(prepared: DatasetVersion, fresh: DatasetVersion) -> None:
    """A version that grew has the records of a fresh one, byte for byte, and the outcomes of its inputs."""
    assert _records(prepared) == _records(fresh), "the records of a fresh prepare"
    assert _outcomes(prepared) == _outcomes(fresh), "and the outcomes of its inputs"


def check_trainings(platform: Platform, dataset: str) -> None:
    """Each version was trained on once at most, and the newest one was."""
    trained = _trained(platform)
    print(f"trained on: {len(trained)} versions")
    assert {ref: count for ref, count in trained.items() if count > 1} == {}, "nothing is trained twice"
    assert f"{dataset}@{Catalog(platform.root).versions(dataset)[-1]}" in trained


def untrained(platform: Platform, dataset: str) -> list[str]:
    """The newest version, if it is not trained on."""
    newest = f"{dataset}@{Catalog(platform.root).versions(dataset)[-1]}"
    return [] if newest in _trained(platform) else [newest]


def _trained(platform: Platform) -> Counter[str]:
    """Names of versions -> the finished trainings on them."""
    runs = list_runs(platform.runs) if platform.runs.is_dir() else []
    return Counter(run.dataset for run in runs if run.result is not None)


def check_history(runs: list[dict[str, Any]], dataset: str) -> None:
    """Each run has ended after it began, and the runs name each version once, in order."""
    print(f"runs: {dict(Counter(run['state_name'] for run in runs))}")
    assert [run["name"] for run in runs if run["state_type"] not in _FINAL] == []
    begun = [run for run in runs if run["start_time"] and run["end_time"]]
    backwards = [run["name"] for run in begun if _time(run["start_time"]) > _time(run["end_time"])]
    assert backwards == [], "each run ends after it began"
    ended = sorted((run for run in runs if run["end_time"]), key=lambda run: _time(run["end_time"]))
    told = [_published(run, dataset) for run in ended]
    numbers = [number for number in told if number is not None]
    print(f"versions told by runs: {len(numbers)}")
    assert numbers == sorted(set(numbers)), "the runs tell of each version once, in order"


def check_log(log: Path, kills: Counter[str]) -> None:
    """The log of `shardmill up` is in order, and has a line for each killed service."""
    lines = log.read_text(encoding="utf-8").splitlines()
    stamps = [found[0] for line in lines if (found := _UP_STAMP.match(line))]
    assert stamps, "the lines have times"
    assert stamps == sorted(stamps), "in order"
    for kind, what in (("worker", "the worker"), ("server", "Prefect's server")):
        told = sum(f"{what} ended with status -9" in line for line in lines)
        # `up` may be killed before it has noticed and logged the kill of a service.
        assert kills[kind] - kills["up"] <= told <= kills[kind], (kind, told, kills[kind])


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _published(run: dict[str, Any], dataset: str) -> int | None:
    """The version that a run published, by its output; None if it does not say so."""
    message = str((run["state"] or {}).get("message") or "")
    found = re.match(rf"Published {re.escape(dataset)}@(\d+)", message)
    return int(found[1]) if found and run["state_type"] == "COMPLETED" else None


def _records(version: DatasetVersion) -> dict[str, tuple[str, str, bytes]]:
    """Id of each record to its source, the name of its class, and the bytes of the shard that hold it."""
    found = {}
    for shard in version.manifest.shards:
        data = version.storage.read_bytes(shard.path)
        for row in version.index(shard).to_pylist():
            begin = row["offset_bytes"]
            label = version.manifest.classes[row["label"]]
            found[row["id"]] = (row["source_uri"], label, data[begin : begin + row["length_bytes"]])
    return found


def _outcomes(version: DatasetVersion) -> list[tuple[str, str, str | None]]:
    rows = version.inputs().select(["uri", "outcome", "reason"]).to_pylist()
    return sorted((row["uri"], row["outcome"], row["reason"]) for row in rows)
