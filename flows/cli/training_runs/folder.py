"""The folder of the training runs that a command names."""

from __future__ import annotations

from pathlib import Path


def runs_folder(runs: str | None) -> Path:
    """Return the folder of the runs as an absolute path.

    Raises:
        UsageError: it is not local.
    """
    from flows.parameters import runs_or_default
    from infra.errors import UsageError

    location = runs_or_default(runs).removeprefix("file://")
    if "://" in location:
        raise UsageError(
            f"training runs are in a local folder; {location} is not local", "give --runs a folder"
        )
    return Path(location)
