"""Compare the time of a whole prepare command with other ways to write the same photographs.

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

``--megapixels 12`` takes photographs of that size, beside the decoders that one takes for those: Pillow with
``draft``, OpenCV with reduced reading and OpenCV in full.

Commands run in turn, several times. The table shows medians, and medians of the ratios within a turn. The
records written are counted each time: Beam's in-process runner sometimes loses a record where several threads
feed a shuffle. Memory is that of all processes of a command together (PSS).

Peers live in environments of their own, which are made on first use from the lists in ``requirements/``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from shardmill.infra.readable import counted
from tests.benchmarks.inputs.arguments import REQUIREMENTS, add_folders, comparison_parser, refuse_unknown
from tests.benchmarks.inputs.photo_folders import REPOSITORY, make_photographs
from tests.benchmarks.inputs.photographs import CODECS
from tests.benchmarks.measuring.process_tree import RARELY_SECONDS, Cost, run_measured
from tests.benchmarks.prepare.commands import LARGE_PEERS, PEERS, SHARDMILL, Peer
from tests.benchmarks.prepare.comparison_table import FEW, Run, show
from tests.environments import environment

_ATTEMPTS = 4
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(REPOSITORY)}


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
) -> Run | None:
    """Run ``measure`` again when the peer fails; each failure is counted under the peer's title.

    Returns:
        the run; None if the peer fails every time.
    """
    for _ in range(_ATTEMPTS):
        try:
            return measure(peer, python, sources, out, codec)
        except RuntimeError as error:
            failures[peer.title] += 1
            print(f"{peer.title} failed: {str(error).strip().splitlines()[-1]}", file=sys.stderr)
    return None


def measure_in_turn(
    names: list[str], told: argparse.Namespace, scratch: Path
) -> tuple[dict[str, list[Run]], Counter[str]]:
    """Run all commands in turn; returns the runs of each command, and how often each title failed.

    A peer that fails every time has no runs.

    Raises:
        RuntimeError: Shardmill fails every time.
    """
    lists = {PEERS[name].requirements for name in names if PEERS[name].module}
    pythons = {name: environment(told.environments, REQUIREMENTS / name) for name in sorted(lists)}
    runs: dict[str, list[Run]] = {name: [] for name in names}
    failures: Counter[str] = Counter()
    sources = Sources(
        make_photographs(scratch / "photographs", told.images, told.folder, told.megapixels),
        make_photographs(scratch / "few", FEW, told.folder, told.megapixels),
    )
    for turn in range(told.repeats):
        for name in list(runs):
            peer = PEERS[name]
            python = pythons.get(peer.requirements, Path(sys.executable))
            run = measure_until_it_works(
                peer, python, sources, scratch / f"{name}-{turn}", told.codec, failures
            )
            if run is not None:
                runs[name].append(run)
                print(f"{name}: {run.cost.wall_seconds:.1f} s", file=sys.stderr)
            elif name == SHARDMILL:
                raise RuntimeError(f"{peer.title} failed {_ATTEMPTS} times")
            else:
                del runs[name]
    return runs, failures


def _parse() -> argparse.Namespace:
    parser = comparison_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--megapixels", type=int, default=0, help="make photographs of this size")
    parser.add_argument("--peers", help="names, separated by commas (default: those for the photographs)")
    parser.add_argument("--codec", choices=CODECS, default=CODECS[0])
    add_folders(parser, "folder for photographs and shards (default: a temporary one)")
    told = parser.parse_args()
    if told.peers is None:
        small = (name for name in PEERS if name != SHARDMILL and name not in LARGE_PEERS)
        told.peers = ",".join(LARGE_PEERS if told.megapixels else small)
    refuse_unknown(parser, told.peers, PEERS, "peer")
    return told


def main() -> None:
    """Measure all in turn and print the table."""
    told = _parse()
    names = [SHARDMILL, *(name for name in told.peers.split(",") if name != SHARDMILL)]
    if told.work is not None:
        told.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=told.work, prefix="prepare-peers-") as scratch:
        runs, failures = measure_in_turn(names, told, Path(scratch))
    show(runs, told.images, told.codec)
    given_up = {PEERS[name].title for name in names if name not in runs}
    for title, count in failures.items():
        then = "is left out" if title in given_up else "was run again"
        print(f"!! {title} failed {counted(count, 'time')}, and {then}")


if __name__ == "__main__":
    main()
