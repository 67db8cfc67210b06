"""How long a whole prepare command takes, beside other ways to write the same photographs.

    python -m tests.benchmarks.prepare.compare [FOLDER] [--images N] [--repeats N] [--peers a,b]
                                               [--codec NAME]

All of them bring the same photographs to short side 256 by area averaging, and write JPEG of quality 90,
4:2:0, into 8 shards on two cores. Whatever leaves the codec to its user is given Shardmill's own (``--codec
opencv`` gives all peers OpenCV's, as most people would). Shardmill also hashes, finds duplicates, computes
statistics, accounts for every input and writes a report.

``--images 32000`` makes start-up count little: a folder with fewer photographs is repeated, mirrored, turned
and with bytes appended, so that contents differ. Start-up is named apart: it is the time of the same command
on 16 photographs, measured in the same turn; "then" is the rate of the remaining photographs in the remaining
time.

Commands run in turn, several times. The table shows medians, and medians of the ratios within a turn. The
records written are counted each time: Beam's in-process runner sometimes loses a record where several threads
feed a shuffle. Memory is that of all processes of a command together (PSS).

Peers live in environments of their own, which are made on first use from the lists in ``requirements/``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from infra.format.records import iter_records
from infra.readable import counted
from infra.storage.filesystem import Storage
from tests.benchmarks.inputs.arguments import REQUIREMENTS, add_folders, comparison_parser, refuse_unknown
from tests.benchmarks.inputs.photo_folders import REPOSITORY, make_photographs
from tests.benchmarks.inputs.photographs import CODECS, QUALITY, SHORT_SIDE
from tests.benchmarks.measuring.process_tree import RARELY_SECONDS, Cost, run_measured
from tests.environments import environment

NUM_SHARDS = 8
_FEW = 16  # photographs: a command on them takes the time of its start-up
WORKERS = 2

_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(REPOSITORY)}


def count_tfrecords(out: Path) -> tuple[int, int]:
    """Count (records, bytes) of all TFRecord files below a folder and check every checksum."""
    records = 0
    files = [path for path in out.rglob("*") if path.is_file() and ".tfrecord" in path.name]
    for path in files:
        packed = "gzip" if path.suffix == ".gz" else "none"
        records += sum(1 for _ in iter_records(Storage.at(str(path.parent)), path.name, packed))
    return records, sum(path.stat().st_size for path in files)


def count_tars(out: Path) -> tuple[int, int]:
    """Count (photographs, bytes) of all tar files in a folder."""
    files = list(out.glob("*.tar"))
    images = 0
    for path in files:
        with tarfile.open(path) as archive:
            images += sum(member.name.endswith(".jpg") for member in archive)
    return images, sum(path.stat().st_size for path in files)


def count_mds(out: Path) -> tuple[int, int]:
    """Count (samples, bytes) of the MDS shards that the index in a folder lists."""
    shards = json.loads((out / "index.json").read_text())["shards"]
    files = [out / shard["raw_data"]["basename"] for shard in shards]
    return sum(shard["samples"] for shard in shards), sum(path.stat().st_size for path in files)


@dataclass(frozen=True)
class Peer:
    """A way to write a dataset.

    Attributes:
        title: in the table.
        aim: how many times as fast Shardmill shall be.
        module: name in tests.benchmarks.prepare.peers; None for Shardmill itself.
        count: (records, bytes) below a folder.
        env: variables that it needs.
        requirements: the list of packages of its environment.
    """

    title: str
    aim: float | None
    module: str | None
    count: Callable[[Path], tuple[int, int]] = count_tfrecords
    env: dict[str, str] = field(default_factory=dict)
    requirements: str = "prepare.txt"

    def argv(self, python: Path, source: Path, out: Path, codec: str) -> list[str]:
        """Return the command that writes the photographs of ``source`` to ``out``."""
        if self.module is None:
            return _prepare_argv(source, out)
        told = ["--shards", str(NUM_SHARDS), "--workers", str(WORKERS), "--codec", codec]
        return [
            str(python),
            "-m",
            f"tests.benchmarks.prepare.peers.{self.module}",
            str(source),
            str(out),
            *told,
        ]


def _prepare_argv(source: Path, out: Path) -> list[str]:
    argv = [sys.executable, "-m", "beam_jobs.prepare", str(source), "--dataset", "peers", "--root", str(out)]
    settings = {
        "image.size": SHORT_SIDE,
        "image.quality": QUALITY,
        "shards.num_shards": NUM_SHARDS,
        "runner.processes": WORKERS,
        "splits.train": 1.0,
        "splits.validation": 0.0,
        "splits.test": 0.0,
    }
    for key, value in settings.items():
        argv += ["--set", f"{key}={value}"]
    return [*argv, "--json"]


def _on_beam(mode: str) -> dict[str, str]:
    return {"SHARDMILL_BENCH_BEAM": mode}


SHARDMILL = "shardmill"
_ATTEMPTS = 4
_TITLE = 40  # characters
PEERS = {
    SHARDMILL: Peer("Shardmill prepare", None, None),
    "tfds-beam": Peer(
        "TensorFlow Datasets on Beam, threads", 3.5, "tfds_dataset", env=_on_beam("multi_threading")
    ),
    "tfds-beam-processes": Peer(
        "TensorFlow Datasets on Beam, processes", 3.5, "tfds_dataset", env=_on_beam("multi_processing")
    ),
    "tfds": Peer("TensorFlow Datasets, generator", 2.8, "tfds_dataset"),
    "beam": Peer("Beam by its guides, threads", 3.2, "textbook_beam", env=_on_beam("multi_threading")),
    "beam-processes": Peer(
        "Beam by its guides, processes", 3.2, "textbook_beam", env=_on_beam("multi_processing")
    ),
    "beam-default": Peer("Beam by its guides, as it comes", 3.2, "textbook_beam", env=_on_beam("in_memory")),
    "webdataset": Peer("WebDataset ShardWriter, pool", 1.3, "webdataset_pool", count_tars),
    "mosaicml": Peer(
        "MosaicML MDSWriter, pool", 1.6, "mosaicml_pool", count_mds, requirements="mosaicml.txt"
    ),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One command, and what it wrote.

    Attributes:
        cost: of the command.
        num_records, num_bytes: written.
        startup_seconds: time of the same command on a few photographs, in the same turn.
    """

    cost: Cost
    num_records: int
    num_bytes: int
    startup_seconds: float

    @property
    def later_per_second(self) -> float:
        """Photographs per second after start-up."""
        return max(self.num_records - _FEW, 0) / max(self.cost.wall_seconds - self.startup_seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class Sources:
    """Folders of photographs to write: all of them, and a few."""

    all: Path
    few: Path


def measure(peer: Peer, python: Path, sources: Sources, out: Path, codec: str) -> Run:
    """Run a peer on a few and on all photographs, count what it wrote, and remove it."""
    startup, _ = _run(peer, peer.argv(python, sources.few, out, codec), out)
    cost, (num_records, num_bytes) = _run(peer, peer.argv(python, sources.all, out, codec), out)
    return Run(cost, num_records, num_bytes, startup.wall_seconds)


def _run(peer: Peer, argv: list[str], out: Path) -> tuple[Cost, tuple[int, int]]:
    """Run a command; returns its cost and the numbers of records and bytes that it wrote to ``out``."""
    try:
        cost = run_measured(argv, REPOSITORY, _QUIET | peer.env, RARELY_SECONDS)
        return cost, peer.count(out)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def measure_until_it_works(
    peer: Peer, python: Path, sources: Sources, out: Path, codec: str, failures: Counter[str]
) -> Run:
    """Run ``measure`` again when the peer fails; each failure is counted under the peer's title.

    Raises:
        RuntimeError: it fails every time.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return measure(peer, python, sources, out, codec)
        except RuntimeError as error:
            failures[peer.title] += 1
            print(f"{peer.title} failed: {str(error).strip().splitlines()[-1]}", file=sys.stderr)
    return measure(peer, python, sources, out, codec)


def show(runs: dict[str, list[Run]], images: int, codec: str) -> None:
    """Print the table."""
    repeats = len(runs[SHARDMILL])
    print(
        f"{images:,} photographs, {NUM_SHARDS} shards, {WORKERS} workers, whole commands, "
        f"medians of {repeats}; the peers' codec: {codec}"
    )
    head = ("images/s", "faster by", "aim", "seconds", "start-up", "then/s", "then by", "CPU s", "CPU by")
    head += ("peak MiB", "records", "MB")
    print(f"{'':<{_TITLE}}" + "".join(f"{name:>10}" for name in head))
    for name, of_peer in runs.items():
        print(
            f"{PEERS[name].title:<{_TITLE}}" + "".join(f"{cell:>10}" for cell in _cells(name, of_peer, runs))
        )
    lossy = {
        PEERS[name].title for name, of_peer in runs.items() if any(r.num_records != images for r in of_peer)
    }
    for title in sorted(lossy):
        print(f"!! {title} did not write all {images:,} photographs in every run")


def _cells(name: str, of_peer: list[Run], runs: dict[str, list[Run]]) -> list[str]:
    wall = statistics.median(run.cost.wall_seconds for run in of_peer)
    cpu = statistics.median(run.cost.cpu_seconds for run in of_peer)
    pairs = list(zip(of_peer, runs[SHARDMILL], strict=True))
    faster = statistics.median(run.cost.wall_seconds / own.cost.wall_seconds for run, own in pairs)
    cheaper = statistics.median(run.cost.cpu_seconds / own.cost.cpu_seconds for run, own in pairs)
    later = statistics.median(own.later_per_second / max(run.later_per_second, 1e-9) for run, own in pairs)
    aim = PEERS[name].aim
    records = min(run.num_records for run in of_peer)
    return [
        f"{records / wall:,.0f}",
        f"{faster:.2f}",
        f"{aim:.1f}" if aim else "",
        f"{wall:.1f}",
        f"{statistics.median(run.startup_seconds for run in of_peer):.1f}",
        f"{statistics.median(run.later_per_second for run in of_peer):,.0f}",
        f"{later:.2f}",
        f"{cpu:.1f}",
        f"{cheaper:.2f}",
        f"{max(run.cost.peak_pss_bytes for run in of_peer) / 2**20:,.0f}",
        f"{records:,}",
        f"{min(run.num_bytes for run in of_peer) / 1e6:,.0f}",
    ]


def _parse() -> argparse.Namespace:
    parser = comparison_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", default=",".join(name for name in PEERS if name != SHARDMILL))
    parser.add_argument("--codec", choices=CODECS, default=CODECS[0])
    add_folders(parser, "folder for photographs and shards (default: a temporary one)")
    told = parser.parse_args()
    refuse_unknown(parser, told.peers, PEERS, "peer")
    return told


def main() -> None:
    """Measure all in turn and print the table."""
    told = _parse()
    names = [SHARDMILL, *(name for name in told.peers.split(",") if name != SHARDMILL)]
    lists = {PEERS[name].requirements for name in names if PEERS[name].module}
    pythons = {name: environment(told.environments, REQUIREMENTS / name) for name in sorted(lists)}
    runs: dict[str, list[Run]] = {name: [] for name in names}
    failures: Counter[str] = Counter()
    if told.work is not None:
        told.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=told.work, prefix="prepare-peers-") as scratch:
        sources = Sources(
            make_photographs(Path(scratch, "photographs"), told.images, told.folder),
            make_photographs(Path(scratch, "few"), _FEW, told.folder),
        )
        for turn in range(told.repeats):
            for name in names:
                out = Path(scratch, f"{name}-{turn}")
                python = pythons.get(PEERS[name].requirements, Path(sys.executable))
                peer = PEERS[name]
                runs[name].append(measure_until_it_works(peer, python, sources, out, told.codec, failures))
                print(f"{name}: {runs[name][-1].cost.wall_seconds:.1f} s", file=sys.stderr)
    show(runs, told.images, told.codec)
    for title, count in failures.items():
        print(f"!! {title} failed {counted(count, 'time')}, and was run again")


if __name__ == "__main__":
    main()
