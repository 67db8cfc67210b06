"""Progress from outside: a thread that counts what is finished in storage.

A runner's ``run`` shows nothing until its end, and its workers may be elsewhere; what they have finished
shows in the storage they write to, whatever the runner.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from infra.errors import ShardmillError
from infra.progress import progress, stage

_SECONDS = 0.5
_BUSY_SHARE = 20  # looking takes at most one part in so many of the time


@contextlib.contextmanager
def watched(name: str, total: int, count_done: Callable[[], int]) -> Iterator[None]:
    """Report the progress of a stage of images while the block runs.

    Args:
        name: of the stage.
        total: images in all.
        count_done: how many of them are finished by now.
    """
    stage(name, total, done=count_done())
    ended = threading.Event()

    def watch() -> None:
        pause = _SECONDS
        while not ended.wait(pause):
            began = time.monotonic()
            with contextlib.suppress(ShardmillError):  # a storage that fails will fail the work itself
                progress(name, count_done(), total)
            pause = max(_SECONDS, _BUSY_SHARE * (time.monotonic() - began))

    thread = threading.Thread(target=watch, name=f"watch {name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    progress(name, count_done(), total)
