"""The parent of the ranks, with ranks that train nothing: real processes, but no TensorFlow."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardmill.infra import progress
from shardmill.infra.errors import (
    Cancelled,
    ChildDied,
    DataError,
    Diverged,
    EnvironmentFault,
    OutOfMemory,
    Preempted,
    UsageError,
)
from shardmill.training.ranks.devices import RankCount, Slot
from shardmill.training.ranks.launchers.local import LocalHosts
from shardmill.training.ranks.supervision.running_rank import RankProcess
from shardmill.training.ranks.supervision.silence import Limits
from shardmill.training.ranks.supervision.supervisor import RankPlan, Supervisor
from tests.samples.ranks.fake_rank import NAMELESS_SIGNAL
from tests.samples.waiting import eventually

STEPS = 25


def deed(name: str, rank: int = 1, attempt: int = 0, step: int | str = 5) -> dict[str, Any]:
    """The action of a rank in an attempt: after so many steps, at its "start", or when asked to "stop"."""
    return {"rank": rank, "attempt": attempt, "step": step, "deed": name}


def plan(tmp_path: Path, *deeds: dict[str, Any], **changes: Any) -> RankPlan:
    """A plan of two ranks."""
    steps = str(changes.pop("steps", STEPS))
    command = [sys.executable, "-m", "tests.samples.ranks.fake_rank", str(tmp_path), steps, json.dumps(deeds)]
    values: dict[str, Any] = {
        "command": command,
        "log_folder": tmp_path / "logs",
        "limits": Limits(start=60.0, step=20.0, stop=20.0),
        "max_restarts": 2,
        "preemption_signals": (signal.SIGTERM,),
        "hosts": LocalHosts(RankCount(2, 2), "all", list),
        "more_parts": lambda _num_ranks: None,
    }
    return RankPlan(**{**values, **changes})


@contextmanager
def logged() -> Iterator[list[str]]:
    """The lines that this process logs while the block runs."""
    lines: list[str] = []
    end = progress.subscribe(
        lambda event: lines.append(event["message"]) if event["event"] == "log" else None
    )
    try:
        yield lines
    finally:
        end()


def ranks_alive(tmp_path: Path) -> list[int]:
    """The processes of ranks of this test that still run."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(tmp_path) in (process.info["cmdline"] or []) and process.status() != psutil.STATUS_ZOMBIE
    ]


def test_undisturbed_ranks_give_the_result_of_the_first(tmp_path: Path) -> None:
    seen: list[Any] = []
    end = progress.subscribe(seen.append)
    try:
        result = Supervisor(plan(tmp_path)).run()
    finally:
        end()
    assert result == {"steps": STEPS, "num_ranks": 2, "peak_rss_bytes": 200, "restarts": []}
    steps = [event["step"] for event in seen if event["event"] == "metrics"]
    assert steps == list(range(1, STEPS + 1)), "the events of rank 0 alone"


@pytest.mark.parametrize(
    ("fault", "reason", "message"),
    [
        (deed("kill"), "signal", "was ended by SIGKILL"),
        (deed("kill", rank=0, step="start"), "signal", "was ended by SIGKILL"),
        (deed("signal without a name"), "signal", f"was ended by signal {NAMELESS_SIGNAL}"),
        (deed("stop"), "stopped", "was stopped (SIGSTOP)"),
        (deed("fault", rank=0), "error", "reported: the disk is full"),
        (deed("exception"), "exit", "ValueError: a defect"),
        (deed("loss"), "loss", "reported: the loss became nan"),
    ],
)
def test_a_failed_rank_starts_all_again(
    tmp_path: Path, fault: dict[str, Any], reason: str, message: str
) -> None:
    result = Supervisor(plan(tmp_path, fault)).run()
    assert result["steps"] == STEPS
    (restart,) = result["restarts"]
    assert (restart["rank"], restart["num_ranks"], restart["reason"]) == (fault["rank"], 2, reason)
    assert message in restart["message"]
    assert ranks_alive(tmp_path) == []


def test_ranks_whose_step_does_not_fit_take_it_in_more_parts(tmp_path: Path) -> None:
    asked: list[int] = []

    def more_parts(num_ranks: int) -> int | None:
        asked.append(num_ranks)
        return 2 * len(asked) if len(asked) < 4 else None

    # Not counted as restarts without progress, of which two are allowed.
    faults = [deed("memory", attempt=attempt, step="start") for attempt in range(3)]
    result = Supervisor(plan(tmp_path, *faults, more_parts=more_parts)).run()
    assert result["steps"] == STEPS
    assert len(result["restarts"]) == 3
    assert asked == [2, 2, 2]


def test_ranks_whose_step_fits_in_no_parts_end(tmp_path: Path) -> None:
    with pytest.raises(OutOfMemory, match="does not fit"):
        Supervisor(plan(tmp_path, deed("memory", step="start"))).run()
    assert ranks_alive(tmp_path) == []


def test_the_rank_that_is_behind_is_the_one_that_hangs(tmp_path: Path) -> None:
    limits = Limits(start=60.0, step=3.0, stop=20.0)
    # Rank 0 has its batch and waits for rank 1, as in a collective.
    result = Supervisor(plan(tmp_path, deed("hang"), limits=limits)).run()
    assert [(row["rank"], row["reason"]) for row in result["restarts"]] == [(1, "silent")]
    log = (tmp_path / "logs" / "rank-1.log").read_text()
    assert "in _do" in log, "the place where it hung"


@pytest.mark.parametrize(
    ("fault", "rank"),
    [
        pytest.param(deed("hang", step="start"), None, id="asleep at start, no rank has taken a step"),
        pytest.param(deed("hang", step=1), 1, id="asleep in its first steps, which may compile"),
        pytest.param(deed("spin"), 1, id="computes for ever between two steps"),
    ],
)
def test_a_hang_is_found_at_any_time(tmp_path: Path, fault: dict[str, Any], rank: int | None) -> None:
    limits = Limits(start=60.0, step=None, stop=20.0, least=3.0)
    result = Supervisor(plan(tmp_path, fault, limits=limits)).run()
    (restart,) = result["restarts"]
    assert restart["reason"] == "silent"
    assert rank in (None, restart["rank"])


def test_ranks_that_take_long_to_start_and_to_end_do_not_hang(tmp_path: Path) -> None:
    limits = Limits(start=60.0, step=None, stop=20.0, least=2.0)
    # Rank 1 computes while rank 0 waits for it; at the end rank 0 waits for a disk, alone.
    faults = deed("compile", step="start"), deed("export", rank=0, step="end")
    result = Supervisor(plan(tmp_path, *faults, limits=limits)).run()
    assert result["restarts"] == []


def test_a_rank_that_lost_another_is_not_the_first_that_failed(tmp_path: Path) -> None:
    faults = deed("lost", rank=0), deed("kill", rank=1)
    result = Supervisor(plan(tmp_path, *faults)).run()
    assert [(row["rank"], row["reason"]) for row in result["restarts"]] == [(1, "signal")]


def test_the_rank_that_computed_the_first_loss_that_is_not_finite_is_named(tmp_path: Path) -> None:
    faults = deed("loss elsewhere", rank=0), deed("late loss", rank=1)
    result = Supervisor(plan(tmp_path, *faults)).run()
    assert [(row["rank"], row["reason"]) for row in result["restarts"]] == [(1, "loss")]


def test_a_rank_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    began = time.monotonic()
    Supervisor(plan(tmp_path, deed("deaf", rank=0), deed("kill", rank=1))).run()
    assert ranks_alive(tmp_path) == []
    assert time.monotonic() - began < 100, "the deaf one sleeps for ten minutes"


@pytest.mark.parametrize(("name", "error"), [("data", DataError), ("loss", Diverged), ("defect", ChildDied)])
def test_an_error_that_comes_again_ends_the_run(tmp_path: Path, name: str, error: type[Exception]) -> None:
    faults = [deed(name, attempt=attempt, step=5) for attempt in range(2)]
    with pytest.raises(error):
        Supervisor(plan(tmp_path, *faults)).run()
    assert ranks_alive(tmp_path) == []


@pytest.mark.parametrize(
    ("begin", "cause"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("from json import no_such_name", "ImportError: cannot import name 'no_such_name'"),
    ],
)
def test_a_rank_that_cannot_be_imported_ends_the_run_at_once(tmp_path: Path, begin: str, cause: str) -> None:
    with pytest.raises(UsageError, match=f"it cannot be started: {cause}"):
        Supervisor(plan(tmp_path, command=[sys.executable, "-c", begin])).run()
    restarts = (tmp_path / "logs" / "restarts.jsonl").read_text().splitlines()
    assert len(restarts) == 1, "one attempt"


def test_restarts_count_only_without_a_step_gained(tmp_path: Path) -> None:
    with_progress = [deed("kill", attempt=attempt, step=5 + 3 * attempt) for attempt in range(5)]
    result = Supervisor(plan(tmp_path, *with_progress)).run()
    assert len(result["restarts"]) == 5


def test_the_budget_of_restarts_ends(tmp_path: Path) -> None:
    never = [deed("kill", attempt=attempt, step="start") for attempt in range(9)]
    with pytest.raises(EnvironmentFault, match=r"in a row without gaining a step; the last time rank 1 of 2"):
        Supervisor(plan(tmp_path, *never)).run()
    assert len((tmp_path / "logs" / "restarts.jsonl").read_text().splitlines()) == 3


def test_a_record_of_a_restart_that_was_cut_off_costs_itself(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "restarts.jsonl").write_text('{"rank": 7}\n{"rank": 8, "rea')
    with logged() as lines:
        result = Supervisor(plan(tmp_path, deed("kill"))).run()
    assert [row["rank"] for row in result["restarts"]] == [7, 1]
    assert [line for line in lines if line.startswith("line 2 of ") and "restarts.jsonl" in line]


def signal_once(holds: Callable[[], bool], number: signal.Signals = signal.SIGTERM) -> None:
    """Send a signal to this process, the parent of the ranks, as soon as something holds."""

    def wait_and_send() -> None:
        assert eventually(holds)
        os.kill(os.getpid(), number)

    threading.Thread(target=wait_and_send, daemon=True).start()


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, Preempted), (signal.SIGINT, Cancelled)])
def test_a_signal_to_the_parent_stops_all_ranks(
    tmp_path: Path, number: signal.Signals, error: type[Cancelled]
) -> None:
    signal_once((tmp_path / "step").exists, number)
    with pytest.raises(error) as caught:
        Supervisor(plan(tmp_path)).run()
    assert type(caught.value) is error
    assert ranks_alive(tmp_path) == []


@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, Preempted), (signal.SIGINT, Cancelled)])
def test_a_signal_to_the_parent_stops_ranks_that_have_no_handlers_yet(
    tmp_path: Path, number: signal.Signals, error: type[Cancelled]
) -> None:
    begun: list[bool] = []

    class SignalledHosts(LocalHosts):
        def start(self, plan: RankPlan, slots: Sequence[Slot], scratch: Path) -> Iterator[RankProcess]:
            yield from super().start(plan, slots, scratch)
            if not begun:
                begun.append(True)
                os.kill(os.getpid(), number)

    with pytest.raises(error) as caught:
        Supervisor(plan(tmp_path, hosts=SignalledHosts(RankCount(2, 2), "all", list))).run()
    assert type(caught.value) is error
    assert ranks_alive(tmp_path) == []


def test_ranks_that_cannot_be_started_while_the_run_stops_do_not_hide_the_stop(tmp_path: Path) -> None:
    class LostHosts(LocalHosts):
        def start(self, plan: RankPlan, slots: Sequence[Slot], scratch: Path) -> Iterator[RankProcess]:
            os.kill(os.getpid(), signal.SIGTERM)
            raise EnvironmentFault("the cluster is gone")

    with logged() as lines, pytest.raises(Preempted):
        Supervisor(plan(tmp_path, hosts=LostHosts(RankCount(2, 2), "all", list))).run()
    assert lines == ["the cluster is gone, while the run stopped"]


def test_a_rank_that_fails_while_it_stops_is_told_but_not_started_again(tmp_path: Path) -> None:
    signal_once((tmp_path / "step").exists)
    each = [deed("fault", rank=rank, step="stop") for rank in (0, 1)]  # the later one loses the other instead
    with logged() as lines, pytest.raises(Preempted):
        Supervisor(plan(tmp_path, *each)).run()
    assert [line for line in lines if "the disk is full" in line and "while the run stopped" in line]
    assert len(list(tmp_path.glob("attempt-*-0"))) == 1


def test_a_stop_between_two_attempts_starts_no_other(tmp_path: Path) -> None:
    never = [deed("kill", attempt=attempt, step="start") for attempt in range(9)]
    record = tmp_path / "logs" / "restarts.jsonl"
    signal_once(lambda: record.exists() and len(record.read_text().splitlines()) == 3)
    with pytest.raises(Preempted):
        Supervisor(plan(tmp_path, *never, max_restarts=9)).run()
    assert len(list(tmp_path.glob("attempt-*-0"))) == 3


def test_a_device_that_is_gone_costs_a_rank_and_comes_back(tmp_path: Path) -> None:
    def gpus() -> list[str]:
        return ["0", "1"] if not (tmp_path / "attempt-0-0").exists() or returned else ["0"]

    returned: list[int] = []
    slots = LocalHosts(RankCount(1, 2), "all", gpus, look_seconds=0.1)
    supervisor = Supervisor(plan(tmp_path, deed("kill"), hosts=slots, steps=200))

    def give_back() -> None:
        while not (tmp_path / "attempt-1-0").exists():
            time.sleep(0.02)
        returned.append(1)

    threading.Thread(target=give_back, daemon=True).start()
    result = supervisor.run()
    assert result["num_ranks"] == 2
    assert [path.read_text() for path in sorted(tmp_path.glob("attempt-*"))] == ["0", "1", "0", "1", "0"]
    assert [(row["rank"], row["num_ranks"]) for row in result["restarts"]] == [(1, 2)]


def test_ranks_that_stop_too_slowly_for_a_device_to_join_are_ended_once(tmp_path: Path) -> None:
    def gpus() -> list[str]:
        return [str(number) for number in range(1 + len(list(tmp_path.glob("attempt-*-0"))))]

    slots = LocalHosts(RankCount(1, 3), "all", gpus, look_seconds=0.1)
    limits = Limits(start=60.0, step=20.0, stop=1.0)
    with logged() as lines:
        result = Supervisor(
            plan(tmp_path, deed("hang", rank=0, step="stop"), hosts=slots, limits=limits, steps=200)
        ).run()
    assert [line for line in lines if "did not stop within 1 s for more ranks to join" in line]
    assert (result["num_ranks"], result["restarts"]) == (2, []), "the third device joins only after a failure"


def test_a_device_on_which_ranks_never_start_is_left_out(tmp_path: Path) -> None:
    faults = [deed("kill", rank=1, attempt=attempt, step="start") for attempt in range(2)]
    slots = LocalHosts(RankCount(1, 2), "all", list)
    result = Supervisor(plan(tmp_path, *faults, hosts=slots)).run()
    assert result["num_ranks"] == 1
