"""Make Pillow's settings for the whole process safe for several threads that decode at once."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from typing import cast

from PIL import AvifImagePlugin, ImageFile

# Jobs decode one image a thread.
AvifImagePlugin.DEFAULT_MAX_THREADS = 1


class _Tolerance(threading.local):
    """A value of Pillow's LOAD_TRUNCATED_IMAGES for each thread. Pillow only asks whether it is true."""

    on = False

    def __bool__(self) -> bool:
        return self.on


_tolerance = _Tolerance()
# If other code in the process sets this to True or False, truncated files can no longer be salvaged.
ImageFile.LOAD_TRUNCATED_IMAGES = cast(bool, _tolerance)


@contextlib.contextmanager
def truncation_tolerated() -> Iterator[None]:
    """Let Pillow decode a part of files that end early, in this thread."""
    _tolerance.on = True
    try:
        yield
    finally:
        _tolerance.on = False


class _Silence:
    """Ignore the warnings of the process as long as any thread asks for it.

    ``warnings.catch_warnings`` alone restores the filters that it found. If two threads overlap, the second
    one would restore the silence of the first, for ever.
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


# Nobody needs Pillow's remarks about odd metadata: sound pixels make an image sound.
no_warnings = _Silence()
