"""A second signal ends a process that is busy in foreign code, where no Python handler runs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

BUSY = """
import signal, sys
from shardmill.training.run.stopping import stop_at_boundaries
from shardmill.training.run.stopping import end_at_second_signal
preemption = (signal.SIGTERM, signal.SIGUSR1)
with stop_at_boundaries(None, preemption) as stop, end_at_second_signal(preemption):
    print("busy", flush=True)
    {work}
stop.check()
"""
# One long call of C code that releases the lock of the interpreter, as those of TensorFlow do.
IN_C = "import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 2_000_000_000)"
SHORT = "import time; time.sleep(1)"


def started(work: str) -> subprocess.Popen[str]:
    code = BUSY.format(work=work)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "busy\n"
    return process


@pytest.mark.parametrize(
    ("first", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 75), (signal.SIGUSR1, 75)]
)
def test_a_second_signal_ends_a_process_at_once(first: signal.Signals, status: int) -> None:
    process = started(IN_C)
    process.send_signal(first)
    process.send_signal(signal.SIGTERM)  # the same request: a parent passes Ctrl-C on
    time.sleep(1)
    assert process.poll() is None
    process.send_signal(first)
    _, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert "error: ended at once, by a second signal" in err


def test_one_signal_is_left_to_the_next_boundary() -> None:
    process = started(SHORT)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Cancelled" in err
