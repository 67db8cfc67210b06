"""The journal: what is in work is known to the other process, whatever becomes of the one that works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.guard import journal as journal_module
from beam_jobs.guard.journal import Journal, Suspect, adopt_journal, open_slot


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    """A journal that this process keeps for itself."""
    with Journal() as made:
        monkeypatch.setattr(journal_module, "_slots", None)
        monkeypatch.setenv(*next(iter(made.env.items())))
        adopt_journal()
        yield made


def in_work(journal: Journal) -> list[tuple[str, str, int, int]]:
    return [(one.source, one.uri, one.size_bytes, one.mtime_ns) for one in journal.in_work()]


def test_what_is_in_work_and_no_longer(journal: Journal) -> None:
    assert journal.in_work() == []
    with open_slot("/photos") as slot:
        assert journal.in_work() == []
        before = time.monotonic()
        slot.begin("a/1.jpg", 10, 20)
        (found,) = journal.in_work()
        assert found == Suspect("/photos", "a/1.jpg", 10, 20, found.since)
        assert before <= found.since <= time.monotonic()
        slot.begin("b/2.jpg", 30, 40)
        assert in_work(journal) == [("/photos", "b/2.jpg", 30, 40)]
        slot.end()
        assert journal.in_work() == []
        slot.begin("c", 1, 1)
    assert journal.in_work() == [], "the end of a block ends its image"


def test_each_thread_has_a_slot_and_slots_are_used_again(journal: Journal) -> None:
    barrier = threading.Barrier(9)

    def work(number: int) -> None:
        with open_slot(f"/source{number}") as slot:
            slot.begin(f"{number}.jpg", number, number)
            barrier.wait()
            barrier.wait()

    for _ in range(2):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        barrier.wait()
        assert sorted(in_work(journal)) == [(f"/source{n}", f"{n}.jpg", n, n) for n in range(8)]
        ages = [one.since for one in journal.in_work()]
        assert ages == sorted(ages), "the longest in work first"
        barrier.wait()
        for thread in threads:
            thread.join()
    assert os.fstat(journal.fd).st_size == 8 * journal_module._SLOT_BYTES


@given(
    source=st.text(max_size=300).filter(lambda text: "\ud800" not in text),
    uri=st.text(min_size=1, max_size=4096),
    size=st.integers(0, 2**62),
    mtime=st.integers(-(2**62), 2**62),
)
def test_any_name_comes_back(source: str, uri: str, size: int, mtime: int) -> None:
    with Journal() as journal:
        slots = journal_module._Slots(journal.fd)
        slot = journal_module.Slot(slots.take(), source)
        slot.begin(uri, size, mtime)
        assert in_work(journal) == [(source, uri, size, mtime)]


def test_a_name_that_no_system_allows_is_not_noted(journal: Journal) -> None:
    with open_slot("/s") as slot:
        slot.begin("x" * (1 << 16), 1, 1)
        assert journal.in_work() == []


def test_without_a_parent_nothing_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_slots", None)
    adopt_journal()
    with open_slot("/s") as slot:
        slot.begin("a", 1, 1)
        slot.end()
    assert journal_module._slots is None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_it_outlives_the_process_that_dies(number: signal.Signals) -> None:
    code = (
        "import os, sys, threading, time\n"
        "from beam_jobs.guard.journal import adopt_journal, open_slot\n"
        "adopt_journal()\n"
        "def work(name):\n"
        "    with open_slot('/s') as slot:\n"
        "        slot.begin(name, 5, 6); os.write(1, b'.\\n'); time.sleep(100)\n"
        "for name in ('one', 'two'):\n"
        "    threading.Thread(target=work, args=(name,), daemon=True).start()\n"
        "time.sleep(100)\n"
    )
    with Journal() as journal:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            env={**os.environ, **journal.env},
            pass_fds=(journal.fd,),
            cwd=Path(__file__).parents[3],
        )
        with process:
            assert process.stdout is not None
            assert (process.stdout.readline(), process.stdout.readline()) == (b".\n", b".\n")
            process.send_signal(number)
        assert process.returncode == -number
        assert sorted(in_work(journal)) == [("/s", "one", 5, 6), ("/s", "two", 5, 6)]
