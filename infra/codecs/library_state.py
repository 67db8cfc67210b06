"""What Pillow keeps for the whole process, made safe for several threads that decode at once."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from typing import cast

from PIL import AvifImagePlugin, ImageFile

# Parallelism comes from the jobs above, one image a thread.
AvifImagePlugin.DEFAULT_MAX_THREADS = 1


class _Tolerance(threading.local):
    """Pillow's LOAD_TRUNCATED_IMAGES, which it only asks for its truth, of each thread by itself."""

    on = False

    def __bool__(self) -> bool:
        return self.on


_tolerance = _Tolerance()
# A user of Pillow in the same process who sets it to True or False takes this away, and salvaging with it.
ImageFile.LOAD_TRUNCATED_IMAGES = cast(bool, _tolerance)


@contextlib.contextmanager
def truncation_tolerated() -> Iterator[None]:
    """In this thread, Pillow makes what it can of files that end early."""
    _tolerance.on = True
    try:
        yield
    finally:
        _tolerance.on = False


class _Silence:
    """Warnings of the process ignored as long as any thread wants it.

    ``warnings.catch_warnings`` alone puts back what it found: of two threads that overlap, the second would
    put back the silence of the first, for ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = 0
        self._caught = contextlib.ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._wanted == 0:
                self._caught.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
            self._wanted += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._wanted -= 1
            if self._wanted == 0:
                self._caught.close()


# What Pillow remarks about odd metadata is of no use to anyone: the pixels decide whether an image is sound.
no_warnings = _Silence()
