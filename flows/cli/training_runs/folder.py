"""The folder of the training runs that a command names."""

from __future__ import annotations

from pathlib import Path


def runs_location(runs: str | None) -> str:
    """Return the folder of the runs as an absolute path or a URI."""
    from flows.parameters import runs_or_default

    return runs_or_default(runs).removeprefix("file://")


def runs_folder(runs: str | None) -> Path:
    """Return the folder of the runs as an absolute path; of an object store, a copy of the results in it.

    Raises:
        StorageError: the store cannot be read.
    """
    from training.runs.stored import local_runs

    return local_runs(runs_location(runs))
