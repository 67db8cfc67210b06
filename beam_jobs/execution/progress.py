"""Progress of a pipeline: a thread that counts the finished images a few times a second.

A runner's ``run`` shows nothing until its end, and its workers may be on other machines. Finished blocks and
shards show in the storage that they are written to, on every runner; the images of unfinished blocks show in
the notes of the pool, on the embedded runner.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from shardmill.infra.errors import ShardmillError
from shardmill.infra.progress import progress, stage

_BUSY_SHARE = 20  # looking takes at most one part in so many of the time


@contextlib.contextmanager
def report_progress(
    name: str, total: int, count_done: Callable[[], int], interval_seconds: float = 0.5
) -> Iterator[None]:
    """Report the progress of a stage of images while the block runs.

    Args:
        name: name of the stage.
        total: images in all.
        count_done: how many of them are finished by now.
        interval_seconds: between two reports, at least.
    """
    done = count_done()
    stage(name, total, done=done)
    ended = threading.Event()

    def watch() -> None:
        most, pause = done, interval_seconds
        while not ended.wait(pause):
            began = time.monotonic()
            with contextlib.suppress(ShardmillError):  # a storage that fails will fail the work itself
                most = max(most, count_done())  # a block that is done again starts from zero
                progress(name, most, total)
            pause = max(interval_seconds, _BUSY_SHARE * (time.monotonic() - began))

    thread = threading.Thread(target=watch, name=f"watch {name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    progress(name, count_done(), total)
