"""The table of prepare commands: medians, and ratios within a turn."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from tests.benchmarks.measuring.history import note
from tests.benchmarks.measuring.process_tree import Cost
from tests.benchmarks.prepare.commands import NUM_SHARDS, PEERS, SHARDMILL, WORKERS

FEW = 16  # photographs: a command on them takes the time of its start-up
_TITLE = 40  # characters


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
        """Photographs per second after start-up; NaN if there are no more than a few, or took no longer."""
        more, seconds = self.num_records - FEW, self.cost.wall_seconds - self.startup_seconds
        return more / seconds if more > 0 and seconds > 0 else math.nan


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
    later = statistics.median(own.later_per_second / run.later_per_second for run, own in pairs)
    aim = PEERS[name].aim
    if name != SHARDMILL:
        note(f"prepare, whole command, times {PEERS[name].title}", faster)
        if math.isfinite(later):
            note(f"prepare, after start-up, times {PEERS[name].title}", later)
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
