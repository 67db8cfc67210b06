"""Server programs of object stores, run for tests with one bucket."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow.fs as pafs
import pytest


def program_of(variable: str, name: str, install: str) -> str:
    """Find a program by an environment variable or in PATH. Skip the test where it is not installed."""
    program = shutil.which(os.environ.get(variable, name))
    if program is None:
        pytest.skip(f"no {name}: `{install}`, or name the program in ${variable}")
    return program


@contextlib.contextmanager
def serving(
    command: Sequence[str],
    folder: Path,
    client: Callable[[], pafs.FileSystem],
    environment: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Run a server until the block ends.

    Args:
        command: starts it.
        folder: its working folder, which gets its log.
        client: makes a file system of the server, in which the folder ``bucket`` is made.
        environment: variables that it needs besides those of the tests.
    """
    log = folder / "log"
    with log.open("wb") as stream:
        server = subprocess.Popen(
            command,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, **(environment or {})},
        )
        try:
            _make_bucket(client, log)
            yield
        finally:
            server.terminate()
            server.wait(timeout=30)


def _make_bucket(client: Callable[[], pafs.FileSystem], log: Path, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            client().create_dir("bucket")
        except OSError as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"the server does not start: {log.read_text()}") from error
            time.sleep(0.5)
        else:
            return
