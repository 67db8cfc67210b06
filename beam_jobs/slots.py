"""How many threads of this process compute at a time, while others wait for the disk.

Beam's in-process runner deals the elements of a stage out to its threads once, at the start, the same number
to each. With as many threads as cores a core then idles whenever its thread waits for a file to reach the
disk, and in the end for the thread whose blocks were the larger ones. So there is a thread more than there
are slots, and who computes holds a slot. Threads take turns, so all come to their ends together, whatever
their blocks.

Where the work is done in processes (beam_jobs.pool) nothing is limited: the system divides the cores among
them. Nor is it on other runners, whose processes are not ours to divide.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Waits for the disk while the others compute, or for its turn. A thread costs Beam 50 ms of processor time.
SPARE = 1

_slots: threading.Semaphore | None = None


def allow_at_once(count: int) -> None:
    """From here on let so many threads of this process compute at a time."""
    global _slots
    _slots = threading.Semaphore(count)


@contextmanager
def computing() -> Iterator[None]:
    """Hold a slot; waits for one."""
    slots = _slots
    if slots is None:
        yield
        return
    with slots:
        yield
