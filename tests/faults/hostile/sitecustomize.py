"""A decoder that does its worst, contrived from outside: with this folder on PYTHONPATH, Pillow obeys its files.

A file whose bytes end in ``HOSTILE:<deed>`` makes ``PIL.Image.open`` do that deed, in every process that Python
starts. Our own code is as it always is.
"""

import ctypes
import os
import signal
import sys
import time
from io import BytesIO

from PIL import Image

_open = Image.open
_ALONE = "beam_jobs.guard.alone" in sys.orig_argv


def _eat() -> None:
    held = []
    while True:
        held.append(b"x" * (32 << 20))


def _crash_in_company() -> None:
    if not _ALONE:
        os.abort()


def _short_of_memory_in_company(seen: list[int] = []) -> None:  # noqa: B006  (once in each process)
    if not _ALONE and not seen:
        seen.append(1)
        raise MemoryError


def _no_memory() -> None:
    raise MemoryError


DEEDS = {
    "abort": os.abort,
    "segfault": lambda: ctypes.string_at(0),
    "bus": lambda: os.kill(os.getpid(), signal.SIGBUS),
    "illegal": lambda: os.kill(os.getpid(), signal.SIGILL),
    "arithmetic": lambda: os.kill(os.getpid(), signal.SIGFPE),
    "exit": lambda: os._exit(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "sleep": lambda: time.sleep(1e6),
    "sleep_with_the_gil": lambda: ctypes.PyDLL(None).sleep(10**6),
    "eat": _eat,
    "no_memory": _no_memory,
    "short_in_company": _short_of_memory_in_company,
    "crash_in_company": _crash_in_company,
}


def _obey(fp: object, *more: object, **options: object) -> object:
    if isinstance(fp, BytesIO):
        _, marked, deed = fp.getvalue().rpartition(b"HOSTILE:")
        if marked:
            DEEDS[deed.decode()]()
    return _open(fp, *more, **options)


Image.open = _obey
