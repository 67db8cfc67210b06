"""End a run at once when a signal asks a second time.

The first SIGINT or SIGTERM asks the run to stop at a step boundary, which may be minutes away while a large
model is traced or compiled. Then TensorFlow's own code runs, and no Python handler does. So a thread watches
the signals themselves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

from infra.errors import GO_ON, Cancelled

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# A terminal sends Ctrl-C to all processes, and a parent may pass it on: that is one request.
_SAME_REQUEST_SECONDS = 0.5


@contextlib.contextmanager
def end_at_second_signal() -> Iterator[None]:
    """End this process with status 130 when a second SIGINT or SIGTERM comes while the block runs.

    The run goes on from its last checkpoint when it is started again. In a thread other than the main one,
    which gets no signals, nothing happens.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(reading,), name="second signal", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)
        watcher.join()
        os.close(reading)


def _watch(reading: int) -> None:
    first: float | None = None
    while number := os.read(reading, 1):
        if number[0] not in _SIGNALS:
            continue
        now = time.monotonic()
        if first is None:
            first = now
        elif now - first > _SAME_REQUEST_SECONDS:
            message = f"error: ended at once, by a second signal\nremedy: {GO_ON}, at its last checkpoint\n"
            os.write(sys.stderr.fileno(), message.encode())
            os._exit(Cancelled.exit_code)
