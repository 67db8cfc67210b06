"""Loading what stays loaded, quickly, or while others work."""

from __future__ import annotations

import gc
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

# What Beam looks for and does without: other kinds of storage and tables than pipelines of numbers have.
_OPTIONAL_TO_BEAM = (
    "apache_beam.io.azure.blobstoragefilesystem",
    "apache_beam.io.gcp.bigquery",
    "apache_beam.io.gcp.gcsfilesystem",
    "boto3",
    "bson",  # and with it pymongo
)
# What Beam loads in case it ever goes to the web, or reads a pipeline from a file; the embedded runner does
# neither.
_RARELY_USED_BY_BEAM = ("httplib2", "yaml")
_LOOK_MILLISECONDS = 5


def begin_loading() -> None:
    """From here on libraries are imported, until ``all_is_loaded``.

    Libraries make objects as they load, Beam half a million, and all of them stay. Python's search for cyclic
    garbage would look at them again and again meanwhile, for a tenth of the time, with Beam for a third;
    afterwards it need never look at them, and forked processes share them for ever.
    """
    gc.disable()


def all_is_loaded() -> None:
    """What is there now stays; garbage is searched for among what comes."""
    gc.freeze()
    gc.enable()


@contextmanager
def quick_loading() -> Iterator[None]:
    """Import large libraries in this block; see ``begin_loading``."""
    begin_loading()
    try:
        yield
    finally:
        all_is_loaded()


def end_bundles_at_once() -> None:
    """Have Beam's worker in this process end when its work does.

    A thread of it looks now and then at what the worker is at, for metrics that nobody reads here, and the
    end of a bundle waits for the next look. By default that is every 200 ms: 0.1 s of each pipeline are lost.
    """
    from apache_beam.runners.worker.statesampler import StateSampler

    vars(StateSampler)["__init__"].__defaults__ = (_LOOK_MILLISECONDS,)  # its last argument


@contextmanager
def lean_beam() -> Iterator[None]:
    """Import Beam in this block without what the embedded runner never needs.

    That takes 0.3 s and 25 MB less of 0.5 s and 50 MB, and more where Beam's extras are installed. In this
    process Beam then knows local files only, and does not compare the types of a pipeline's steps; whatever
    else imports these modules afterwards gets them.
    """
    in_place: dict[str, ModuleType | None] = dict.fromkeys(_OPTIONAL_TO_BEAM)  # None says: not installed
    in_place |= {name: _LoadedWhenUsed(name) for name in _RARELY_USED_BY_BEAM}
    in_place |= _agreeing_type_checker()
    in_place = {name: module for name, module in in_place.items() if name not in sys.modules}
    sys.modules.update(in_place)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name, module in in_place.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


class _LoadedWhenUsed(ModuleType):
    """A module that loads the real one when something of it is first asked for.

    Not ``importlib.util.LazyLoader``: that loads the module as soon as another imports it.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by whoever imports it
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def _agreeing_type_checker() -> dict[str, ModuleType]:
    """What Beam compares types with, 40 ms to load; our pipelines are of numbers, of which all is known."""
    if "beartype" in sys.modules:
        return {}
    package, door, roar = (ModuleType(name) for name in ("beartype", "beartype.door", "beartype.roar"))
    vars(door)["is_subhint"] = lambda sub, base: True
    vars(roar)["BeartypeDoorException"] = TypeError  # which nothing raises
    return {module.__name__: module for module in (package, door, roar)}


@contextmanager
def meanwhile(load: Callable[[], None], after_seconds: float) -> Iterator[None]:
    """Load something on a thread while this block waits for others; it is there when the block ends.

    What goes wrong with it is left to those who use it, and so is all of it where the block is short.

    Args:
        load: imports.
        after_seconds: so long the block has other things to do than to wait.
    """
    loading = threading.Timer(after_seconds, load)
    loading.daemon = True
    loading.start()
    yield
    loading.cancel()
    loading.join()
