"""Several ranks in one pod, and their common exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shardmill.training.ranks.launchers.outer import joint_status
from tests.samples.waiting import eventually

# Writes its variables to a file, then ends with the status that stands for its rank.
RANK = """\
import os, pathlib, sys, time
rank = os.environ["RANK"]
told = [os.environ[name] for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE")]
file = pathlib.Path(sys.argv[1], rank)
file.with_suffix(".new").write_text(" ".join(told))
file.with_suffix(".new").rename(file)
time.sleep(float(sys.argv[2]))
os._exit(int(sys.argv[3:][int(told[0])]))
"""


def start(folder: Path, seconds: float, *statuses: int) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "shardmill.training.ranks.launchers.kubernetes_pod",
        "--ranks",
        str(len(statuses)),
    ]
    command += ["--", sys.executable, "-c", RANK, str(folder), str(seconds), *map(str, statuses)]
    return subprocess.Popen(command, env={**os.environ, "JOB_COMPLETION_INDEX": "3"})


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [((0, 0), 0), ((75, 0), 75), ((75, 75), 75), ((4, 75), 4), ((1, 0), 4), ((-9, 4), 4), ((4, 2, 75), 2)],
)
def test_a_rank_that_is_to_blame_decides_the_status_of_all(statuses: tuple[int, ...], expected: int) -> None:
    assert joint_status(statuses) == expected


def test_ranks_are_numbered_over_all_pods(tmp_path: Path) -> None:
    with start(tmp_path, 0.0, 0, 75) as pod:
        assert pod.wait(timeout=60) == 75
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"6": "0 2", "7": "1 2"}


def test_a_signal_reaches_all_ranks(tmp_path: Path) -> None:
    with start(tmp_path, 300.0, 0, 0) as pod:
        assert eventually(lambda: {"6", "7"} <= {path.name for path in tmp_path.iterdir()})
        pod.send_signal(signal.SIGTERM)
        assert pod.wait(timeout=60) == 4  # these ranks do not save
