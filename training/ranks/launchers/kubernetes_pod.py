"""Several ranks in one pod: ``python -m shardmill.training.ranks.launchers.kubernetes_pod --ranks N -- …``.

This is the first process of such a container. It starts a rank for each GPU, passes signals on to all of
them, and ends with one status for all of them. The ranks communicate through the memory of the pod, and die
with the container.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Final

from shardmill.training.ranks.launchers.outer import PREEMPTED, joint_status

# Kubernetes sets it in the containers of an indexed job.
_INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"
_LOOK_SECONDS = 0.1
# Ranks that lost another one say so and end; one that is still looking for the others does not.
_LAST_SECONDS = 10.0


def _run_ranks(command: Sequence[str], num_ranks: int, pod: int) -> int:
    """Run the ranks of a pod, and return one exit status for all."""
    ranks: list[subprocess.Popen[bytes]] = []
    for local in range(num_ranks):
        own = {"RANK": pod * num_ranks + local, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": num_ranks}
        variables = {name: str(value) for name, value in own.items()}
        ranks.append(subprocess.Popen(command, env={**os.environ, **variables}))

    def pass_on(number: int, _frame: FrameType | None) -> None:
        for rank in ranks:
            rank.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        signal.signal(number, pass_on)
    failed_at: float | None = None
    while any(rank.poll() is None for rank in ranks):
        if failed_at is None and any(rank.poll() not in (None, 0, PREEMPTED) for rank in ranks):
            failed_at = time.monotonic()
        if failed_at is not None and time.monotonic() - failed_at > _LAST_SECONDS:
            for rank in ranks:
                rank.kill()
        time.sleep(_LOOK_SECONDS)
    return joint_status(rank.wait() for rank in ranks)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser("python -m shardmill.training.ranks.launchers.kubernetes_pod")
    parser.add_argument("--ranks", type=int, required=True, help="ranks of each pod")
    parser.add_argument("command", nargs="+", help="command of a rank, after --")
    args = parser.parse_args(argv)
    return _run_ranks(args.command, args.ranks, int(os.environ[_INDEX_VARIABLE]))


if __name__ == "__main__":
    sys.exit(main())
