"""Compare the rate of prepare with the limit of its codec, measured in the same minutes.

    python -m tests.benchmarks.prepare.rate [FOLDER] [--photos N] [--repeats N] [--workers N]

*Limit*: as many processes as workers, each taking its part of the photos from memory through the codec in a
tight loop: JPEG to planes, planes scaled by area, planes to JPEG, and nothing else: no file is read or
written, nothing is hashed, nothing is known of a photo afterwards. A file that is no JPEG of planes is
converted as prepare would. There are two, of the same bytes: with OpenCV's area averaging, which is what
anyone would write, and with the compiled one (shardmill.infra.native.area).
*Prepare*: ``python -m shardmill.beam_jobs.prepare`` on the same photos, from files to a published version
with eight shards a split. Both in turn, several times; medians are shown, and the median of the ratios within
a turn. Other work on the machine slows both, so trust the ratios, and the CPU seconds more than the clock.

*Large photographs*: CPU time of one of 12 and of 48 megapixels in one process, from its file to all that
prepare stores of it, beside the decoders that others take for them (tests.benchmarks.inputs.photographs).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.encode.block_task import convert
from shardmill.beam_jobs.sources import list_inputs
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.infra.codecs import WHITE, ImageRejected
from shardmill.infra.codecs.geometry import geometry
from shardmill.infra.codecs.jpeg.planes import decoding_scale, fit
from shardmill.infra.codecs.jpeg.turbojpeg import decode_planes, encode_planes, library, read_planar_header
from shardmill.infra.native.library import FOLDER_VARIABLE
from shardmill.infra.preparation import Sizing
from tests.benchmarks.inputs.photo_folders import make_photographs
from tests.benchmarks.inputs.photographs import CODECS, photographs
from tests.benchmarks.inputs.photographs import convert as convert_as_peer
from tests.benchmarks.measuring.history import note
from tests.benchmarks.measuring.process_tree import RARELY_SECONDS, run_measured
from tests.samples.images.photos import jpeg, write

PHOTO_HEIGHT, PHOTO_WIDTH = 533, 400
# What happens once however many photos there are: the interpreter, the libraries, Beam.
_STARTUP_STAGES = ("load",)


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run.

    Attributes:
        images: converted.
        wall_seconds, cpu_seconds: of all processes together.
    """

    images: int
    wall_seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        return self.images / self.wall_seconds


def make_folder(root: Path, count: int) -> Path:
    """``count`` photos of 400×533 in two classes."""
    for number in range(count):
        name = f"{'even' if number % 2 == 0 else 'odd'}/{number:05d}.jpg"
        write(root, {name: jpeg(number, PHOTO_HEIGHT, PHOTO_WIDTH)})
    return root


def photo_paths(folder: Path) -> list[Path]:
    """The files that prepare would read."""
    uris = list_inputs(SourceFolder(str(folder)), PrepareConfig()).to_read()["uri"].to_pylist()
    return [folder / uri for uri in uris]


def _convert_all(paths: list[Path], compiled: bool, ready: Any, results: Any) -> None:
    config = PrepareConfig()
    if not compiled:
        os.environ[FOLDER_VARIABLE] = "none"
    contents = [path.read_bytes() for path in paths]
    ready.wait()
    began, cpu_began = time.perf_counter(), time.process_time()
    for data in contents:
        _convert(data, config)
    results.put((time.perf_counter() - began, time.process_time() - cpu_began))


def _convert(data: bytes, config: PrepareConfig) -> None:
    header = read_planar_header(data) if library() else None
    if header is not None:
        to = geometry(header.height, header.width, Sizing("short", config.image.size, config.image.size))
        scale = decoding_scale(to, header.sample, 1, 3)
        if (planes := decode_planes(data, header, scale)) is not None:
            encode_planes(fit(planes, to, 3, WHITE), config.image.quality)
            return
    with contextlib.suppress(ImageRejected):
        convert(data, config.image, config.filter)


def measure_limit(paths: list[Path], workers: int, *, compiled: bool) -> Run:
    """The codec in a tight loop over bytes in memory, one process per worker.

    Args:
        paths: of the photos.
        workers: how many processes.
        compiled: with compiled area averaging; else with OpenCV's.
    """
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(workers), context.Queue()
    processes = [
        context.Process(target=_convert_all, args=(paths[number::workers], compiled, ready, results))
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    measured = [results.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    return Run(len(paths), max(wall for wall, _ in measured), sum(cpu for _, cpu in measured))


def measure_prepare(
    folder: Path, root: Path, workers: int, more: Sequence[str] = ()
) -> tuple[Run, Run, dict[str, Any]]:
    """Measure prepare; return its run without start-up, its whole run, and its result."""
    argv = [
        sys.executable,
        "-m",
        "shardmill.beam_jobs.prepare",
        str(folder),
        "--dataset",
        "rate",
        "--root",
        str(root),
    ]
    argv += ["--json", "--failure-budget", "1", "--set", f"runner.processes={workers}"]
    argv += ["--set", "shards.num_shards=8", *more]
    cost = run_measured(argv, Path.cwd(), sample_seconds=RARELY_SECONDS)
    outcome: dict[str, Any] = json.loads(cost.output.splitlines()[-1])
    images = sum(outcome["class_counts_before"].values())
    inner = Run(images, _work(outcome["stage_seconds"]), _work(outcome["stage_cpu_seconds"]))
    return inner, Run(images, cost.wall_seconds, cost.cpu_seconds), outcome


def _work(seconds_by_stage: dict[str, float]) -> float:
    return sum(seconds for stage, seconds in seconds_by_stage.items() if stage not in _STARTUP_STAGES)


def show(name: str, runs: list[Run], limits: list[Run], which: str) -> None:
    """A line of the table; ``which`` names the limit."""
    pairs = list(zip(runs, limits, strict=True))
    per_second = statistics.median(run.per_second for run in runs)
    ratio = statistics.median(run.per_second / limit.per_second for run, limit in pairs)
    wall = statistics.median(run.wall_seconds for run in runs)
    cpu = statistics.median(run.cpu_seconds for run in runs)
    cpu_ratio = statistics.median(run.cpu_seconds / limit.cpu_seconds for run, limit in pairs)
    if runs is not limits:
        note(f"{name.strip()}, of {which}", ratio)
    print(f"{name:<28}{per_second:>10,.0f}{ratio:>10.2f}{wall:>10.2f}{cpu:>10.2f}{cpu_ratio:>10.2f}")


def show_large(folder: Path | None, scratch: Path, repeats: int) -> None:
    """Print the CPU time of a large photograph, and of its peers in the same turns."""
    config = PrepareConfig()
    ways: dict[str, Callable[[str], object]] = {
        "prepare": lambda path: convert(Path(path).read_bytes(), config.image, config.filter),
        **{
            codec: functools.partial(convert_as_peer, codec=codec) for codec in CODECS if codec != "shardmill"
        },
    }
    print(f"{'CPU ms a photograph':<28}" + "".join(f"{name:>16}" for name in ways))
    for megapixels, count in ((12, 8), (48, 4)):
        made = make_photographs(scratch / f"{megapixels}", count, folder, megapixels)
        paths = [path for path, _ in photographs(made)]
        turns = [[_cpu_milliseconds(way, paths) for way in ways.values()] for _ in range(repeats)]
        cells = []
        for number, name in enumerate(ways):
            spent = statistics.median(turn[number] for turn in turns)
            ratio = statistics.median(turn[number] / turn[0] for turn in turns)
            if number:
                note(f"prepare, CPU of a photograph of {megapixels} megapixels, times {name}", ratio)
            cells.append(f"{spent:.1f} ({ratio:.2f} x)")
        print(f"{megapixels:>4} megapixels{'':<14}" + "".join(f"{cell:>16}" for cell in cells))


def _cpu_milliseconds(way: Callable[[str], object], paths: list[str]) -> float:
    began = time.process_time()
    for path in paths:
        way(path)
    return 1e3 * (time.process_time() - began) / len(paths)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, help="an image folder; without one, photos are made")
    parser.add_argument("--photos", type=int, default=1500, help="photos to make where no folder is given")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="prepare-rate-") as scratch:
        folder = arguments.folder or make_folder(Path(scratch) / "photos", arguments.photos)
        paths = photo_paths(folder)
        limits: list[Run] = []
        compiled: list[Run] = []
        turns: list[tuple[Run, Run, dict[str, Any]]] = []
        for number in range(arguments.repeats):
            limits.append(measure_limit(paths, arguments.workers, compiled=False))
            compiled.append(measure_limit(paths, arguments.workers, compiled=True))
            turns.append(measure_prepare(folder, Path(scratch) / f"root{number}", arguments.workers))
        show_large(arguments.folder, Path(scratch), arguments.repeats)
    print(f"{len(paths):,} photos, {arguments.workers} workers, medians of {arguments.repeats} turns")
    print(f"{'':<28}{'images/s':>10}{'of limit':>10}{'seconds':>10}{'CPU s':>10}{'x limit':>10}")
    for limit, of_which in ((limits, "OpenCV's area averaging"), (compiled, "compiled area averaging")):
        print(f"of the limit with {of_which}:")
        show("  limit: codec, tight loop", limit, limit, of_which)
        show("  prepare, start-up apart", [inner for inner, _, _ in turns], limit, of_which)
        show("  prepare, whole command", [whole for _, whole, _ in turns], limit, of_which)
    for clock in ("stage_seconds", "stage_cpu_seconds"):
        stages = {name: [outcome[clock][name] for _, _, outcome in turns] for name in turns[0][2][clock]}
        told = ", ".join(f"{name} {statistics.median(seconds):.2f}" for name, seconds in stages.items())
        print(f"{clock}: {told}")
    print(f"peak memory of the Beam child: {max(o['peak_memory_bytes'] for *_, o in turns) / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
