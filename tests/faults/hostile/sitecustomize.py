"""A decoder that does its worst, contrived from outside: with this folder on PYTHONPATH, Pillow obeys files.

An image of one of the sizes in ``deeds`` makes ``PIL.Image.open`` do a deed, in every process that Python
starts. Our own code is as it always is. Deeds that are done once leave a mark in the folder HOSTILE_MARKS.
"""

import ctypes
import multiprocessing
import os
import signal
import time
from pathlib import Path

from deeds import deed_of
from PIL import Image

_open = Image.open


def _is_alone() -> bool:
    return multiprocessing.current_process().name == "sandbox"


def _eat() -> None:
    held = []
    while True:
        held.append(b"x" * (32 << 20))


def _crash_in_company() -> None:
    if not _is_alone():
        os.abort()


def _short_in_company() -> None:
    mark = Path(os.environ["HOSTILE_MARKS"], "short")
    if not _is_alone() and not mark.exists():
        mark.touch()
        raise MemoryError


def _no_memory() -> None:
    raise MemoryError


_DOES = {
    "abort": os.abort,
    "segfault": lambda: ctypes.string_at(0),
    "bus": lambda: os.kill(os.getpid(), signal.SIGBUS),
    "illegal": lambda: os.kill(os.getpid(), signal.SIGILL),
    "arithmetic": lambda: os.kill(os.getpid(), signal.SIGFPE),
    "exit": lambda: os._exit(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "sleep": lambda: time.sleep(1e6),
    "sleep_with_the_gil": lambda: ctypes.PyDLL(None).sleep(10**6),
    "sleep_3_seconds": lambda: time.sleep(3),
    "eat": _eat,
    "no_memory": _no_memory,
    "short_in_company": _short_in_company,
    "crash_in_company": _crash_in_company,
}


def _obey(*arguments: object, **options: object) -> object:
    image = _open(*arguments, **options)
    deed = deed_of(*image.size)
    if deed is not None:
        _DOES[deed]()
    return image


Image.open = _obey
