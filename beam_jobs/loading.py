"""Loading what stays loaded, quickly, or while others work."""

from __future__ import annotations

import gc
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# What Beam looks for and does without: other kinds of storage and tables than pipelines of numbers have.
_OPTIONAL_TO_BEAM = (
    "apache_beam.io.azure.blobstoragefilesystem",
    "apache_beam.io.gcp.bigquery",
    "apache_beam.io.gcp.gcsfilesystem",
    "boto3",
    "bson",  # and with it pymongo
)
# What Beam loads in case it ever goes to the web, which the embedded runner never does.
_RARELY_USED_BY_BEAM = ("httplib2",)


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
def lean_beam() -> Iterator[None]:
    """Import Beam in this block without what the embedded runner never needs.

    That takes 0.2 s and 19 MB less of 0.5 s and 50 MB, and more where Beam's extras are installed. In this
    process Beam then knows local files only; afterwards whatever else imports these modules gets them.
    """
    absent = [name for name in _OPTIONAL_TO_BEAM if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]  # the way to say: not installed
    for name in _RARELY_USED_BY_BEAM:
        _load_when_used(name)
    try:
        yield
    finally:
        for name in absent:
            if sys.modules.get(name) is None:
                sys.modules.pop(name, None)


def _load_when_used(name: str) -> None:
    """Put a module in place that loads itself when something of it is first asked for."""
    spec = importlib.util.find_spec(name) if name not in sys.modules else None
    if spec is None or spec.loader is None:
        return
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


@contextmanager
def meanwhile(load: Callable[[], None]) -> Iterator[None]:
    """Load something on a thread while this block waits for others; it is there when the block ends.

    What goes wrong with it is left to those who use it.
    """
    thread = threading.Thread(target=load, name="loading", daemon=True)
    thread.start()
    yield
    thread.join()
