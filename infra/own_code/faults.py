"""Errors of the user's code, told apart from defects of Shardmill and faults of a machine."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from shardmill.infra.errors import ConfigError, ShardmillError, UnusableInput
from shardmill.infra.progress import log

OURS = "shardmill"
_EARLIER = ("beam_jobs", "flows", "infra", "training")  # the names of our packages in release 0.1.0
# A library says so of its device or network; the same code may succeed the next time.
_OF_THE_MACHINE = re.compile(r"cuda|cudnn|cublas|nccl|gloo|hip error|out of memory", re.IGNORECASE)
# TensorFlow raises these for an operation of a graph, and says in the text where the operation was made.
_OF_A_GRAPH = ("InvalidArgumentError", "FailedPreconditionError", "OutOfRangeError", "UnimplementedError",
               "UnknownError")  # fmt: skip
_PLACE = re.compile(r'File "([^"\n]+)", line (\d+)')


def top_package(module: str) -> str:
    """Return the first part of a dotted name."""
    return module.partition(".")[0]


@contextmanager
def faults_of_own_code(
    named: Mapping[str, str], page: str, passed: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Turn an unexpected exception from a package of the user into an error that names file and line.

    An exception belongs to that package if its code, or a library that it called, raised it. The traceback
    goes to the log.

    Args:
        named: module of the user -> the setting that names it. Modules of Shardmill are left out.
        page: the page of the documentation about such code.
        passed: exceptions that stay as they are.

    Raises:
        ConfigError: a package of the user failed, or ended the process.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        is_meant = isinstance(error, (ShardmillError, UnusableInput, MemoryError, *passed))
        packages = {top_package(name): setting for name, setting in named.items()}
        packages = {name: setting for name, setting in packages.items() if name != OURS}
        found = None if is_meant else _place_of(error, packages)
        if found is None:
            raise
        log("".join(traceback.format_exception(error)).rstrip(), level="error")
        place, package = found
        message = (str(error).strip().splitlines() or [""])[0]
        earlier = top_package(error.name or "") if isinstance(error, ImportError) else ""
        moved = f"; {earlier} of Shardmill is shardmill.{earlier} now" if earlier in _EARLIER else ""
        raise ConfigError(
            f"{place}, failed: {type(error).__name__}: {message}",
            f"mend it: it belongs to your own {packages[package]} ({page}){moved}",
        ) from error


def _place_of(error: BaseException, packages: Mapping[str, str]) -> tuple[str, str] | None:
    """Return file and line at which an exception arose in one of some packages, and the package.

    None: our code raised it, or the machine is at fault.
    """
    message = str(error)
    if isinstance(error, SyntaxError) and error.filename:
        package = _package_of(error.filename, packages)
        return None if package is None else (f"{error.filename}, line {error.lineno}", package)
    if isinstance(error, RuntimeError) and _OF_THE_MACHINE.search(message):
        return None
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        package = top_package(str(frame.f_globals.get("__name__", "")))
        if package in packages:
            return f"{frame.f_code.co_filename}, line {line}", package
        if package == OURS and frame.f_globals["__name__"] != __name__:
            break
    if type(error).__name__ in _OF_A_GRAPH:
        for file, number in reversed(_PLACE.findall(message)):
            package_of_file = _package_of(file, packages)
            if package_of_file is not None:
                return f"{file}, line {number}", package_of_file
    return None


def _package_of(file: str, packages: Mapping[str, str]) -> str | None:
    """Return which of some packages a file of code belongs to."""
    for package in packages:
        module = sys.modules.get(package)
        folders = [Path(folder) for folder in getattr(module, "__path__", ())]
        if Path(file).stem == package or any(folder in Path(file).parents for folder in folders):
            return package
    return None
