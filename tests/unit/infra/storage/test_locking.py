"""A process differs from later ones with the same number; a process that cannot be seen counts as alive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardmill.infra.storage import locking as process_identity
from shardmill.infra.storage.locking import has_ended, started_at


def test_a_process_that_works_has_not_ended() -> None:
    assert not has_ended(os.getpid(), started_at(os.getpid()))


def test_another_process_of_the_same_number_is_not_the_one_that_was_meant() -> None:
    assert has_ended(os.getpid(), started_at(os.getpid()) - 1)


def test_a_process_that_was_waited_for_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = started_at(process.pid)
        assert not has_ended(process.pid, started)
    assert has_ended(process.pid, started)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="of Linux alone")
def test_a_process_whose_folder_is_hidden_counts_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    started = started_at(os.getpid())

    def hidden(_: Path) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", hidden)
    assert process_identity.started_at(os.getpid()) == 0
    assert not has_ended(os.getpid(), started)
