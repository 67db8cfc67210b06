"""The continuation of a Slurm job after its ranks have ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmill.training.ranks.launchers.slurm_next_try import (
    AGAIN,
    REQUEUE,
    Tries,
    decide,
    last_checkpoint,
    main,
    read_statuses,
    read_tries,
)


@pytest.mark.parametrize(
    ("statuses", "action", "status"),
    [
        ({0: 0, 1: 0}, "done", 0),
        ({0: 0, 1: 4}, "done", 0),  # rank 0 has written the result
        ({0: 75, 1: 75}, "requeue", 75),
        ({0: 75, 1: 0}, "requeue", 75),
        ({0: 4, 1: 2}, "stop", 2),
        ({0: 3, 1: 75}, "stop", 3),
        ({0: 130, 1: 75}, "stop", 130),
        ({0: 4, 1: 137}, "again", 4),
        ({0: 75, 1: 1}, "again", 4),
        ({0: 75}, "again", 4),  # rank 1 was killed with its shell
        ({}, "again", 4),
    ],
)
def test_the_statuses_of_all_ranks_decide(statuses: dict[int, int], action: str, status: int) -> None:
    decision = decide(statuses, 2, step=8, tries=Tries(4, 2), max_restarts=3)
    assert (decision.action, decision.status) == (action, status)


def test_failures_without_a_checkpoint_are_queued_again_until_the_limit() -> None:
    tries, actions = Tries(), []
    for step in (-1, 4, 4, 4, 8, 8, 8, 8):
        decision = decide({0: 4, 1: 4}, 2, step, tries, max_restarts=2)
        tries = decision.tries
        actions.append(decision.action)
    assert actions == ["requeue", "again", "requeue", "requeue", "again", "requeue", "requeue", "stop"]


def test_a_preemption_forgets_earlier_failures() -> None:
    decision = decide({0: 75, 1: 75}, 2, step=4, tries=Tries(4, 2), max_restarts=2)
    assert decision.tries == Tries(4, 0)


def test_the_reason_names_the_rank_that_failed_first() -> None:
    decision = decide({0: 4, 1: 137, 2: 4}, 3, step=4, tries=Tries(), max_restarts=2)
    assert decision.reason.startswith("rank 1 of 3 ended with status 137")


def test_the_state_is_kept_for_the_next_try(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statuses, state, checkpoints = (tmp_path / name for name in ("statuses", "state", "checkpoints"))
    for folder in (statuses, state):
        folder.mkdir()
    (statuses / "0").write_text("4\n")
    arguments = ["--statuses", str(statuses), "--ranks", "1", "--state", str(state)]
    arguments += ["--checkpoints", str(checkpoints), "--max-restarts", "1"]
    assert main(arguments) == REQUEUE
    checkpoints.mkdir()
    (checkpoints / "step-000000012.npz").touch()
    assert main(arguments) == AGAIN
    assert read_tries(state) == Tries(12, 0)
    assert main(arguments) == REQUEUE
    assert main(arguments) == 4
    assert "gives up" in capsys.readouterr().err


def test_a_store_that_does_not_answer_counts_as_no_new_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "0").write_text("4\n")
    arguments = ["--statuses", str(tmp_path), "--ranks", "1", "--state", str(tmp_path)]
    arguments += ["--checkpoints", "unknown://bucket/runs/one/checkpoints", "--max-restarts", "1"]
    assert main(arguments) == REQUEUE
    assert "no new checkpoint is known" in capsys.readouterr().err


def test_unfinished_files_count_neither_as_checkpoints_nor_as_statuses(tmp_path: Path) -> None:
    for name in ("step-000000004.npz", "best.npz", ".step-000000009.npz.part", "latest"):
        (tmp_path / name).touch()
    assert last_checkpoint(tmp_path) == 4
    assert last_checkpoint(tmp_path / "none") == -1
    (tmp_path / "3").write_text("")
    (tmp_path / "1").write_text("75\n")
    assert read_statuses(tmp_path) == {1: 75}
