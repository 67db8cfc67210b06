"""Decide how a batch job of Slurm goes on, once the ranks of a try have ended. The batch script runs this.

    all ranks saved and ended on a signal            queue the job again, any number of times
    a failure that settings or data are to blame for end the job with that status
    a failure after at least one new checkpoint      start the ranks again on the same nodes
    a failure without one                            queue the job again, for other nodes perhaps; a limited
                                                     number of times in a row

The state of the job is a file in a folder that outlives it: ``tries.json``.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from shardmill.infra.errors import ShardmillError
from shardmill.infra.json_files import read_json, write_json
from shardmill.infra.readable import counted
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.ranks.launchers.outer import FINAL, PREEMPTED, RANK_LOST, joint_status

# Exit statuses besides those that end the job. No rank ends with them.
AGAIN: Final = 100
REQUEUE: Final = 101

_STATE = "tries.json"
_KILLED: Final = 137
_CHECKPOINT = re.compile(r"step-(\d+)\b")


@dataclass(frozen=True, slots=True)
class Tries:
    """The results of earlier tries of a job.

    Attributes:
        step: the step of the last checkpoint after the latest failure; -1: there was none.
        without_progress: failures in a row since then that gained no checkpoint.
    """

    step: int = -1
    without_progress: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision how the job continues.

    Attributes:
        action: "done"; "again": start the ranks again; "requeue": queue the job again; "stop": it failed.
        status: the exit status of the script where it ends.
        tries: the state to keep.
        reason: for people.
    """

    action: Literal["done", "again", "requeue", "stop"]
    status: int
    tries: Tries
    reason: str


def decide(
    statuses: Mapping[int, int], num_ranks: int, step: int, tries: Tries, max_restarts: int
) -> Decision:
    """Decide whether to try a job again, and with which exit status the batch script ends.

    Args:
        statuses: the exit status of each rank that noted one; the others were killed with their shell.
        num_ranks: the number of ranks.
        step: the step of the last checkpoint; -1: there is none.
        tries: the results of earlier tries.
        max_restarts: failures in a row that gain no checkpoint, before the job fails.
    """
    ended = {rank: statuses.get(rank, _KILLED) for rank in range(num_ranks)}
    if ended[0] == 0:
        return Decision("done", 0, tries, "the training has finished")
    status = joint_status(ended.values())
    if status in FINAL:
        rank = min(rank for rank, own in ended.items() if own == status)
        return Decision("stop", status, tries, f"rank {rank} ended with status {status}")
    if status == PREEMPTED:
        return Decision("requeue", PREEMPTED, Tries(step, 0), "the ranks saved and ended on a signal")
    failed = {rank: status for rank, status in ended.items() if status not in (0, PREEMPTED)}
    # A rank that lost another one is not the first that failed.
    rank = next((rank for rank, status in failed.items() if status != RANK_LOST), min(failed))
    reason = f"rank {rank} of {num_ranks} ended with status {failed[rank]}"
    if step > tries.step:
        return Decision("again", RANK_LOST, Tries(step, 0), f"{reason}, after the checkpoint of step {step}")
    without_progress = tries.without_progress + 1
    reason += f", without a new checkpoint ({without_progress} of {max_restarts})"
    state = Tries(max(step, tries.step), without_progress)
    if without_progress > max_restarts:
        return Decision("stop", RANK_LOST, state, f"{reason}; the job gives up")
    return Decision("requeue", RANK_LOST, state, reason)


def last_checkpoint(folder: str | Path) -> int:
    """Return the step of the last checkpoint in a folder or an object store; -1: there is none.

    Raises:
        StorageError: the store cannot be read.
    """
    names = [entry.path for entry in Storage.at(folder).list_files(recursive=False)]
    return max((int(found[1]) for name in names if (found := _CHECKPOINT.match(name))), default=-1)


def read_statuses(folder: Path) -> dict[int, int]:
    """Read the exit statuses that ranks noted, by rank."""
    noted = {int(path.name): path.read_text().strip() for path in folder.iterdir() if path.name.isdigit()}
    return {rank: int(text) for rank, text in sorted(noted.items()) if text.isdigit()}


def read_tries(folder: Path) -> Tries:
    """Read the state of a job."""
    path = folder / _STATE
    return read_json(path, Tries, "remove it: earlier tries are then forgotten") if path.exists() else Tries()


def main(argv: Sequence[str] | None = None) -> int:
    """Decide, keep the state, write the reason to standard error; return the batch script's exit status."""
    parser = argparse.ArgumentParser("python -m shardmill.training.ranks.launchers.slurm_next_try")
    parser.add_argument("--statuses", type=Path, required=True, help="folder with a file for each rank")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--state", type=Path, required=True, help="folder of the job's state")
    parser.add_argument("--checkpoints", required=True, help="folder or URI")
    parser.add_argument("--max-restarts", type=int, required=True)
    args = parser.parse_args(argv)
    tries = read_tries(args.state)
    try:
        step = last_checkpoint(args.checkpoints)
    except ShardmillError as error:
        print(f"no new checkpoint is known: {error}", file=sys.stderr, flush=True)
        step = tries.step
    decision = decide(read_statuses(args.statuses), args.ranks, step, tries, args.max_restarts)
    write_json(args.state / _STATE, decision.tries)
    words = {
        "done": "the job is done",
        "again": f"{counted(args.ranks, 'rank')} start again from the last checkpoint",
        "requeue": "the job is queued again",
        "stop": "the job ends",
    }
    print(f"{decision.reason}: {words[decision.action]}", file=sys.stderr, flush=True)
    return {"again": AGAIN, "requeue": REQUEUE}.get(decision.action, decision.status)


if __name__ == "__main__":
    sys.exit(main())
