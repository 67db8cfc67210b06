"""Measure what the one parent of prepare does while its many processes wait, and how busy it keeps them.

    python -m tests.benchmarks.prepare.parent [--images 4000 32000] [--lanes 8 16 32 64 128] [--no-processes]

*In series*: the processor time of the main thread from one stage to the next, on small photographs of two
numbers; from both follow the fixed part and the part that grows with the images. In brackets, and not in the
sum, that of all threads of the parent: while it plans (up to four look for near-duplicates), and for a pool
whose processes do nothing with as many blocks and shards.
*Lanes*: the time until that many processes have begun, and what measuring their memory takes.
*Simulated*: the part of their time in which so many processes work on blocks of photographs, if each block
goes to whichever is free: 0.6 ms for a photograph and as long again for 24 KiB, give or take a third at
random, and 1 ms for a block.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig, RunnerConfig
from shardmill.beam_jobs.encode.blocks import cut_blocks
from shardmill.beam_jobs.execution.pool import Pool
from shardmill.beam_jobs.execution.pool.starting import start_ahead, start_server
from shardmill.beam_jobs.execution.runners import run_task
from shardmill.beam_jobs.execution.task import Limits, Task
from shardmill.beam_jobs.request import JobRequest
from shardmill.beam_jobs.schemas import REFERENCE_SCHEMA
from shardmill.infra.processes.trees import SAMPLE_SECONDS, MemorySampler
from shardmill.infra.progress import Event, subscribe
from tests.benchmarks.inputs.photo_folders import PHOTOGRAPHS, make_small_photographs
from tests.benchmarks.measuring.history import note
from tests.benchmarks.scale.schedule import DoNothing

_SHARDS = 24
_OPENED = "opened-"


def measure_stages(source: str, root: str) -> dict[str, float]:
    """Prepare in this process; return the processor time of the main thread by stage (seconds)."""
    from shardmill.beam_jobs.job import prepare_version  # each process of a pool loads this module, too

    seconds: Counter[str] = Counter()
    now, since, all_since = "begin", time.thread_time(), time.process_time()

    def take(event: Event) -> None:
        nonlocal now, since, all_since
        if event["event"] in ("stage", "end"):
            seconds[now] += time.thread_time() - since
            if now == "plan":
                seconds["(plan, all threads)"] += time.process_time() - all_since
            now, since, all_since = str(event["stage"]), time.thread_time(), time.process_time()

    subscribe(take)
    config = PrepareConfig(runner=RunnerConfig(processes=2))
    prepare_version(JobRequest(source=source, dataset="d", root=root, config=config))
    take({"event": "end", "stage": ""})
    before = time.process_time()
    for numbers in (-(-len(list(Path(source).rglob("*.jpg"))) // config.runner.block_images), _SHARDS):
        run_task(DoNothing(), range(numbers), config.runner)
    seconds["(idle pool)"] = time.process_time() - before
    return dict(seconds)


class _Sleep(Task):
    """Notes when its process has begun, and sleeps."""

    name: ClassVar[str] = "Sleep"

    def __init__(self, folder: str) -> None:
        self._folder = folder

    @property
    def limits(self) -> Limits:
        """As decoding has them, so that the pool watches its processes."""
        return Limits(60.0, 1 << 32)

    def open(self) -> None:
        """Note the time."""
        Path(self._folder, f"{_OPENED}{os.getpid()}").write_text(repr(time.monotonic()))

    def do(self, number: int) -> None:
        """Sleep, so that each process takes one."""
        time.sleep(3)


def measure_lanes(lanes: int) -> tuple[float, float]:
    """Return the time until so many processes have begun, and what a look at their memory takes (seconds)."""
    with tempfile.TemporaryDirectory() as folder:
        start_ahead(lanes)  # as prepare does while it cuts the blocks and Beam builds its pipeline
        time.sleep(0.3)
        began, pool = time.monotonic(), Pool(_Sleep(folder), lanes)
        submitted = [pool.submit(number) for number in range(lanes)]
        files: Sequence[Path] = []
        while len(files) < lanes:
            time.sleep(0.05)
            files = list(Path(folder).glob(f"{_OPENED}*"))
        ready = max(float(file.read_text() or began) for file in files) - began
        sampler, used = MemorySampler(os.getpid()), time.thread_time()
        for _ in range(10):
            sampler.sample()
        look = (time.thread_time() - used) / 10
        for future in submitted:
            future.result()
        pool.close()
    return ready, look


def simulate(sizes: npt.NDArray[np.int64], lanes: int) -> tuple[int, float]:
    """Return the number of blocks of files of these sizes (bytes), and the part of the time with work."""
    columns = {name: pa.nulls(len(sizes), pa.string()) for name in REFERENCE_SCHEMA.names}
    columns |= {"size_bytes": pa.array(sizes), "mtime_ns": pa.nulls(len(sizes), pa.int64())}
    blocks = cut_blocks(pa.table(columns), RunnerConfig().block_images, lanes)
    noise = np.random.default_rng(0).lognormal(0, 0.3, len(sizes))
    costs = 0.6e-3 * (1 + sizes / (24 << 10)) * noise
    free = [0.0] * lanes
    for block in blocks:
        work = 1e-3 + float(costs[block.start : block.start + block.length].sum())
        heapq.heapreplace(free, free[0] + work)
    return len(blocks), float(costs.sum()) / (lanes * max(free))


def show_stages(counts: Sequence[int]) -> None:
    """Measure the stages for each number of images in a child, and print the table."""
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="prepare-parent-") as work:
        for count in counts:
            source = make_small_photographs(Path(work, f"photographs-{count}"), 0, count)
            command = [sys.executable, "-m", "tests.benchmarks.prepare.parent", "--stages"]
            done = subprocess.run(
                [*command, str(source), f"{work}/datasets-{count}"], check=True, stdout=subprocess.PIPE
            )
            rows.append(json.loads(done.stdout))
    few, many = counts[0], counts[-1]
    print("| CPU of the parent in series | " + " | ".join(f"{count:,}, s" for count in counts), end="")
    print(" | fixed, s | an image, µs |\n" + "|---" * (len(counts) + 3) + "|")
    for row in rows:
        row["all"] = sum(seconds for name, seconds in row.items() if "(" not in name)
    for name in rows[-1]:
        each = (rows[-1][name] - rows[0][name]) / (many - few)
        told = " | ".join(f"{row[name]:.3f}" for row in rows)
        print(f"| {name} | {told} | {rows[0][name] - few * each:.2f} | {1e6 * each:.1f} |")


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, nargs="+", default=[4000, 32000])
    parser.add_argument("--lanes", type=int, nargs="+", default=[8, 16, 32, 64, 128])
    parser.add_argument("--no-processes", action="store_true", help="do not start that many processes")
    parser.add_argument("--stages", nargs=2, help=argparse.SUPPRESS)
    told: Any = parser.parse_args()
    if told.stages:
        print(json.dumps(measure_stages(*told.stages)))
        return 0
    show_stages(told.images)
    sizes = np.array([file.stat().st_size for file in sorted(PHOTOGRAPHS.rglob("*.jpg"))] or [28_000])
    start_server()
    print(
        "| lanes | begun after, s | a look, ms | of a core | 3,781: blocks | busy | 30,248: blocks | busy |"
    )
    print("|---" * 8 + "|")
    for lanes in told.lanes:
        ready, look = (0.0, 0.0) if told.no_processes else measure_lanes(lanes)
        share = look / max(SAMPLE_SECONDS, 100 * look)
        simulated = [simulate(np.resize(sizes, count), lanes) for count in (3_781, 30_248)]
        note(f"prepare, busy part of {lanes} processes at 30,248 photographs, simulated", simulated[-1][1])
        parts = " | ".join(f"{blocks} | {busy:.0%}" for blocks, busy in simulated)
        print(f"| {lanes} | {ready:.2f} | {1e3 * look:.1f} | {share:.1%} | {parts} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
