"""Loading what stays loaded, quickly, or while others work."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def quick_loading() -> Iterator[None]:
    """Import large libraries in this block.

    Beam makes half a million objects as it loads, and all of them stay. Python's search for cyclic garbage
    would look at them again and again meanwhile, for a third of the time; afterwards it need never look at
    them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


@contextmanager
def meanwhile(load: Callable[[], None]) -> Iterator[None]:
    """Load something on a thread while this block waits for others; it is there when the block ends.

    What goes wrong with it is left to those who use it.
    """
    thread = threading.Thread(target=load, name="loading", daemon=True)
    thread.start()
    yield
    thread.join()
