"""Take away what Python has on Linux alone. A process with this folder on PYTHONPATH loads it at its start.

psutil may look at /proc: on other systems it asks in other ways.
"""

import os
import sys
import time

_HIDDEN = ("/proc", "/sys/fs/cgroup")
_OF_LINUX = (
    "copy_file_range", "eventfd", "fdatasync", "getrandom", "memfd_create", "pidfd_open", "posix_fadvise",
    "posix_fallocate", "sched_getaffinity", "sched_setaffinity", "splice",
)  # fmt: skip

for name in _OF_LINUX:
    if hasattr(os, name):
        delattr(os, name)
del time.CLOCK_BOOTTIME


def _refuse(path, depth):
    place = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    if place.startswith(_HIDDEN):
        caller = sys._getframe(depth).f_globals.get("__name__", "")
        if not caller.startswith("psutil"):
            raise FileNotFoundError(2, os.strerror(2), place)


def _watch(event, arguments):
    if event in ("open", "os.listdir", "os.scandir"):
        _refuse(arguments[0], 2)


def _hiding(function):
    def called(path, *arguments, **named):
        _refuse(path, 2)
        return function(path, *arguments, **named)

    return called


sys.addaudithook(_watch)
os.stat, os.lstat, os.readlink = map(_hiding, (os.stat, os.lstat, os.readlink))
