"""A rank without TensorFlow: takes steps with the others, beats, and does what its deeds say.

``python -m tests.samples.ranks.fake_rank FOLDER STEPS DEEDS``: DEEDS is JSON, a list of
``{"rank": r, "attempt": a, "step": s, "deed": name}``. Steps are kept in FOLDER, as a checkpoint would.
A file ``enough`` there ends the training.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from shardmill.infra import progress as events
from shardmill.infra.errors import (
    ChildDied,
    DataError,
    Diverged,
    DivergedElsewhere,
    EnvironmentFault,
    OutOfMemory,
    Preempted,
    RankLost,
)
from shardmill.infra.processes.process import REPORT_DEFECT, run_main
from shardmill.training.ranks.cluster import Cluster, cluster_from_environment
from shardmill.training.ranks.heartbeat import Work, heart_of_this_process

STEP_SECONDS = 0.02
LONG_SECONDS = 4.0
NAMELESS_SIGNAL = signal.SIGRTMIN + 6


def _do(deed: str) -> None:
    """Fail in some way, or take long."""
    if deed == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif deed == "signal without a name":
        os.kill(os.getpid(), NAMELESS_SIGNAL)
    elif deed == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif deed == "hang":
        time.sleep(600)
    elif deed == "spin":
        while True:
            pass
    elif deed == "compile":
        until = time.monotonic() + LONG_SECONDS
        while time.monotonic() < until:
            pass
    elif deed == "export":
        time.sleep(LONG_SECONDS)
    elif deed == "loss elsewhere":
        raise DivergedElsewhere("the loss became nan", "lower optimizer.learning_rate")
    elif deed == "late loss":
        time.sleep(1.5)
        raise Diverged("the loss became nan", "lower optimizer.learning_rate")
    elif deed == "lost":
        time.sleep(0.3)
        raise RankLost("another rank is gone")
    elif deed == "loss":
        raise Diverged("the loss became nan", "lower optimizer.learning_rate")
    elif deed == "data":
        raise DataError("a shard is damaged", "restore it")
    elif deed == "defect":
        raise ChildDied("TypeError: an argument is missing", REPORT_DEFECT)
    elif deed == "fault":
        raise EnvironmentFault("the disk is full", "make room")
    elif deed == "memory":
        raise OutOfMemory("a training step does not fit into memory")
    elif deed == "exception":
        raise ValueError("a defect")
    elif deed == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)


def _meet(folder: Path, place: object, rank: int, step: int) -> None:
    """Wait for the other ranks, as a collective does."""
    time.sleep(STEP_SECONDS)
    addresses = place.addresses if isinstance(place, Cluster) else ("alone",)
    places = [folder / f"at-{addresses[0].replace(':', '-')}-{other}" for other in range(len(addresses))]
    with places[rank].open("a") as file:
        file.write(".")
    own = places[rank].stat().st_size
    while any(not other.exists() or other.stat().st_size < own for other in places):
        if (folder / "enough").exists():
            return
        time.sleep(0.005)


def _run(folder: Path, steps: int, deeds: list[dict[str, object]]) -> int:
    place = cluster_from_environment({"TF_CONFIG": os.environ["TF_CONFIG"]})
    rank, num_ranks = (place.rank, place.num_ranks) if isinstance(place, Cluster) else (0, 1)
    faulthandler.register(signal.SIGQUIT)
    heart = heart_of_this_process()
    assert heart is not None
    attempt = len(list(folder.glob(f"attempt-*-{rank}")))
    (folder / f"attempt-{attempt}-{rank}").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    own = {(deed["attempt"], deed["step"]): str(deed["deed"]) for deed in deeds if deed["rank"] == rank}
    saved = folder / "step"
    step = int(saved.read_text()) if saved.exists() else 0
    _do(own.get((attempt, "start"), ""))
    events.stage("train", steps)
    while step < steps and not (folder / "enough").exists():
        _do(own.get((attempt, step), ""))
        heart.beat()
        step += 1
        _meet(folder, place, rank, step)
        heart.beat(step)
        if rank == 0:
            saved.write_text(str(step))
            events.metrics(step=step)
        if asked:
            _do(own.get((attempt, "stop"), ""))
            raise Preempted("stopped on request")
    with heart.during(Work.LONG):
        _do(own.get((attempt, "end"), ""))
    events.result({"steps": step, "num_ranks": num_ranks, "peak_rss_bytes": 100})
    return 0


def main() -> NoReturn:
    """Run the rank."""
    folder, steps, deeds = sys.argv[1:]
    sys.exit(run_main(lambda: _run(Path(folder), int(steps), json.loads(deeds))))


if __name__ == "__main__":
    main()
