"""Retries after errors, and the pauses between them."""

from __future__ import annotations

import pytest

from shardmill.flows.flow_runs import running
from shardmill.infra.errors import (
    ChildDied,
    ConfigError,
    EnvironmentFault,
    FailureBudgetExceeded,
    StorageError,
)
from shardmill.infra.processes.children import ChildResult


def died(returncode: int) -> ChildDied:
    """The error of a child that ended with this status and said nothing."""
    with pytest.raises(ChildDied) as raised:
        ChildResult(returncode, None, None, 0, 0.0).raise_for_status()
    return raised.value


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (died(-9), True),  # out of memory, or killed
        (died(-11), True),  # a library crashed
        (died(1), False),  # a defect: an unexpected exception
        (ConfigError("bad"), False),
        (FailureBudgetExceeded("bad"), False),
        (StorageError("cannot write: no space left on the device"), False),
        (EnvironmentFault("bad"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_only_a_killed_job_is_tried_again(error: BaseException, helps: bool) -> None:
    assert running.may_help(error) is helps


def test_the_pauses_grow_and_the_last_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []
    monkeypatch.setattr("time.sleep", paused.append)

    def job() -> None:
        raise died(-9)

    with pytest.raises(ChildDied, match="SIGKILL"):
        running.tried_again(job)
    assert paused == [5.0, 20.0, 80.0]


def test_a_defect_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", pytest.fail)

    def job() -> None:
        raise died(1)

    with pytest.raises(ChildDied, match="unexpected exception"):
        running.tried_again(job)
