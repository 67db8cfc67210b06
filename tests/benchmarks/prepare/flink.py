"""The rate of prepare on a Flink cluster of this machine, beside the embedded runner on the same cores.

    python -m tests.benchmarks.prepare.flink [FOLDER] [--images N] [--repeats N]

The cluster (tests/samples/clusters) has two TaskManagers, each with its part of the cores. Both runners
prepare a quarter of the photographs and all of them, in turn. The rate is that of the difference: what
happens once, such as the start of Python and the copying of jars to the cluster, drops out, and is shown by
itself, as the time that no image would take. The CPU seconds are those of the processes that work on images.
Other work on the machine slows both, so trust the ratio.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.inputs.arguments import comparison_parser
from tests.benchmarks.inputs.photo_folders import REPOSITORY, make_photographs
from tests.benchmarks.measuring.process_tree import RARELY_SECONDS, run_measured
from tests.samples.clusters.flink import running_cluster
from tests.samples.preparing.command import prepare_command

_STAGES = ("encode", "assemble")
_SMALLER = 4  # the small folder has one photograph in so many
_EMBEDDED, _FLINK = "embedded", "flink, 2 TaskManagers"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of prepare.

    Attributes:
        seconds: of its Beam jobs.
        cpu_seconds: of the processes that work on images.
    """

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Pair:
    """Both sizes on one runner.

    Attributes:
        small, large: the runs.
        num_small, num_large: of photographs.
    """

    small: Run
    large: Run
    num_small: int
    num_large: int

    @property
    def per_second(self) -> float:
        return (self.num_large - self.num_small) / (self.large.seconds - self.small.seconds)

    @property
    def cpu_per_second(self) -> float:
        return (self.num_large - self.num_small) / (self.large.cpu_seconds - self.small.cpu_seconds)

    @property
    def start_seconds(self) -> float:
        return self.large.seconds - self.num_large / self.per_second


def run_prepare(folder: Path, more: Sequence[str]) -> Run:
    """Prepare a folder from nothing."""
    with tempfile.TemporaryDirectory() as root:
        argv = [*prepare_command(folder, Path(root)), "--json", *more]
        cost = run_measured(argv, REPOSITORY, sample_seconds=RARELY_SECONDS)
    outcome = json.loads(cost.output.splitlines()[-1])
    seconds, cpu_seconds = (
        sum(outcome[name][stage] for stage in _STAGES) for name in ("stage_seconds", "stage_cpu_seconds")
    )
    return Run(seconds, cpu_seconds)


def print_table(pairs: dict[str, list[Pair]]) -> None:
    """Print a row for each runner, and the ratios within a turn."""
    print(f"{'runner':22} {'images/s':>9} {'images per CPU s':>17} {'start-up, s':>12}")
    for name, found in pairs.items():
        rate, cpu_rate, start = (
            statistics.median(getattr(pair, value) for pair in found)
            for value in ("per_second", "cpu_per_second", "start_seconds")
        )
        print(f"{name:22} {rate:9.0f} {cpu_rate:17.0f} {start:12.1f}")
    turns = list(zip(pairs[_FLINK], pairs[_EMBEDDED], strict=True))
    ratios = ", ".join(f"{flink.per_second / embedded.per_second:.2f}" for flink, embedded in turns)
    print(f"flink / embedded, images/s within each turn: {ratios}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns its exit status."""
    parser = comparison_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args(argv)
    pairs: dict[str, list[Pair]] = {_EMBEDDED: [], _FLINK: []}
    numbers = (arguments.images // _SMALLER, arguments.images)
    with tempfile.TemporaryDirectory() as place:
        folders = [make_photographs(Path(place, str(number)), number, arguments.folder) for number in numbers]
        with running_cluster(Path(place, "cluster")) as cluster:
            where = {_EMBEDDED: ["--set", "runner.processes=2"], _FLINK: ["--config", str(cluster.config)]}
            for turn in range(arguments.repeats):
                for name, more in where.items():
                    runs = [
                        run_prepare(folder, [*more, "--set", "shards.num_shards=8"]) for folder in folders
                    ]
                    pairs[name].append(Pair(*runs, *numbers))
                    print(f"turn {turn + 1}, {name}: {runs}", flush=True)
    print_table(pairs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
