"""The exit status of a process in words."""

from __future__ import annotations

import signal

import pytest

from shardmill.infra.processes.process import describe_status


@pytest.mark.parametrize(
    ("status", "words"),
    [(1, "status 1"), (-signal.SIGSEGV, "SIGSEGV"), (-signal.SIGRTMIN - 6, f"signal {signal.SIGRTMIN + 6}")],
)
def test_a_status_in_words(status: int, words: str) -> None:
    assert describe_status(status) == words
