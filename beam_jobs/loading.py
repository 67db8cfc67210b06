"""Loading what stays loaded, quickly."""

from __future__ import annotations

import gc
from collections.abc import Iterator
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
