"""Plan synthetic references by ranges, in a pool of processes, and check the plan."""

from __future__ import annotations

import resource
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.encode.blocks import place_facts
from shardmill.beam_jobs.plan_by_ranges import GatherFacts, PlanOnStorage, plan_on_storage, plan_tables
from shardmill.beam_jobs.plan_by_ranges.gathering import LISTED, FileRange
from shardmill.beam_jobs.plan_by_ranges.tables import RangeTask
from shardmill.beam_jobs.publish.digests import Digests, plan_digest
from shardmill.beam_jobs.schemas import FACTS_SCHEMA
from shardmill.infra.storage.filesystem import Storage
from tests.benchmarks.scale.checks import check_plan
from tests.benchmarks.scale.references import References

KEPT_FREE_BYTES = 8 << 30
CONFIG = PrepareConfig.model_validate({"groups": {"near_duplicates": False}})
DIGESTS = Digests("scale", "scale", {})


@dataclass(frozen=True)
class MakesFacts(GatherFacts):
    """Makes the listing and the facts of a range where ``prepare`` reads them from the spool."""

    references: References = field(kw_only=True)

    def gather(self, number: int) -> None:
        """Write the tables of a range."""
        part = self.ranges[number]
        self.tables.write(LISTED, number, self.references.listing(part.start, part.stop))
        super().gather(number)

    def facts_of_blocks(self, part: FileRange) -> pa.Table:
        """Return the facts of a range."""
        facts = self.references.facts(part.start, part.stop)
        return place_facts(facts, np.zeros(facts.num_rows, np.int32))


def measure_ranges(folder: Path, references: References, ranges: int, processes: int) -> dict[str, Any]:
    """Plan by ranges, check the plan, and return what it cost.

    Raises:
        AssertionError: the plan is wrong.
        OSError: the disk is nearly full.
    """
    tables = plan_tables(Storage.at(str(folder)), "scale", ranges)
    bounds = [number * references.count // ranges for number in range(ranges + 1)]
    parts = [FileRange(start, stop, (), 0, stop - start) for start, stop in pairwise(bounds)]
    gathering = MakesFacts(tables, parts, FACTS_SCHEMA, references=references)
    started = time.monotonic()
    with ProcessPoolExecutor(processes, get_context("spawn")) as executor:
        pool = _Pool(folder, executor)
        plan = plan_on_storage(gathering, CONFIG, run=pool.run)
        pool.say("the rest")
        planned = time.monotonic()
        small = replace(plan, summary=replace(plan.summary, label_conflicts=[]))
        digest = executor.submit(_digest, small)
        found = executor.submit(check_plan, small, references)
        checked, (sha256, digest_seconds) = found.result(), digest.result()
    return {
        "seconds": planned - started,
        "cpu_seconds": sum(cpu_seconds for _, cpu_seconds, _ in pool.steps.values()),
        "check_seconds": time.monotonic() - planned,
        "digest_cpu_seconds": digest_seconds,
        "peak_bytes": _peak_bytes(),
        "peak_of_processes_bytes": pool.peak_bytes,
        "disk_bytes": pool.disk_bytes,
        "steps": pool.steps,
        "conflicts": len(plan.summary.label_conflicts),
        "shards": len(plan.shards),
        "digest": sha256,
        **checked,
    }


class _Pool:
    """Runs tasks in processes, and watches the disk.

    Attributes:
        steps: name of the task -> (seconds, CPU-seconds, bytes on disk afterwards).
        peak_bytes: most resident memory of a process.
        disk_bytes: most bytes on disk.
    """

    def __init__(self, folder: Path, executor: ProcessPoolExecutor) -> None:
        self._folder, self._executor = folder, executor
        self._last = time.monotonic(), time.process_time()
        self._cpu_seconds = 0.0
        self.steps: dict[str, tuple[float, float, int]] = {}
        self.peak_bytes = self.disk_bytes = 0

    def run(self, task: RangeTask, numbers: Sequence[int]) -> None:
        """Do the numbers of a task."""
        self.say(f"before {task.name}")
        waiting = [self._executor.submit(_do, task, number) for number in numbers]
        for done in as_completed(waiting):
            cpu_seconds, peak_bytes = done.result()
            self._cpu_seconds += cpu_seconds
            self.peak_bytes = max(self.peak_bytes, peak_bytes)
            if shutil.disk_usage(self._folder).free < KEPT_FREE_BYTES:
                self._executor.shutdown(cancel_futures=True)
                raise OSError(f"less than {KEPT_FREE_BYTES >> 30} GiB are free")
        self.say(task.name)

    def say(self, name: str) -> None:
        """Note what was used since the last call."""
        now = time.monotonic(), time.process_time()
        seconds = round(now[0] - self._last[0], 1)
        cpu_seconds = round(now[1] - self._last[1] + self._cpu_seconds, 1)
        disk = sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())
        self.disk_bytes = max(self.disk_bytes, disk)
        self.steps[name] = seconds, cpu_seconds, disk
        print(
            f"{time.strftime('%H:%M:%S')} {name}: {seconds} s, {cpu_seconds} CPU-s, "
            f"{disk >> 20:,} MiB on disk; "
            f"peak {_peak_bytes() >> 20:,} MiB here, {self.peak_bytes >> 20:,} MiB in a process",
            file=sys.stderr,
            flush=True,
        )
        self._last, self._cpu_seconds = now, 0.0


def _do(task: RangeTask, number: int) -> tuple[float, int]:
    started = time.process_time()
    task.do(number)
    return time.process_time() - started, _peak_bytes()


def _digest(plan: PlanOnStorage) -> tuple[str, float]:
    """Return the digest of a plan, and its CPU-seconds."""
    started = time.process_time()
    return plan_digest(plan, DIGESTS, "none"), time.process_time() - started


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
