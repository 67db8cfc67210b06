"""End a run at once when a signal asks a second time.

The first signal asks the run to stop at a step boundary, which may be minutes away while a large model is
traced or compiled. Then TensorFlow's own code runs, and no Python handler does. So a thread watches the
signals themselves. A rank under a parent needs no such thread: the parent ends it at a second signal, and an
outer system may send a rank the signal that the parent also passes on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

from shardmill.infra.errors import GO_ON, Cancelled, Preempted

# A terminal sends Ctrl-C to all processes, and a parent may pass it on: that is one request.
_SAME_REQUEST_SECONDS = 0.5


@contextlib.contextmanager
def end_at_second_signal(
    preemption_signals: tuple[int, ...] = (signal.SIGTERM,), *, has_parent: bool = False
) -> Iterator[None]:
    """End this process when a second signal that asks it to stop comes while the block runs.

    It ends with status 130 if one of the signals was SIGINT, else with 75, as after a single one. The run
    goes on from its last checkpoint when it is started again. In a thread other than the main one, which gets
    no signals, nothing happens.

    Args:
        preemption_signals: signals besides SIGINT.
        has_parent: a parent of ranks watches this process; then nothing happens either.
    """
    if has_parent or threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    watched = {*preemption_signals, signal.SIGINT}
    watcher = threading.Thread(target=_watch, args=(reading, watched), name="second signal", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)
        watcher.join()
        os.close(reading)


def _watch(reading: int, watched: set[int]) -> None:
    first_at: float | None = None
    error: type[Cancelled] = Preempted
    while number := os.read(reading, 1):
        if number[0] not in watched:
            continue
        if number[0] == signal.SIGINT:
            error = Cancelled
        now = time.monotonic()
        if first_at is None:
            first_at = now
        elif now - first_at > _SAME_REQUEST_SECONDS:
            message = f"error: ended at once, by a second signal\nremedy: {GO_ON}, at its last checkpoint\n"
            os.write(sys.stderr.fileno(), message.encode())
            os._exit(error.exit_code)
