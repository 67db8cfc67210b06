"""Unfinished work of other builds of the codecs: never mixed with new work, and never silently left behind.

The builds are part of a run's digest, so other builds make other spools. A run notes in its spool what it was
made with; one that finds the unfinished spool of the same source and configuration under other builds
refuses to begin: either these builds are not the ones that were meant, or the work there is to be given up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from infra.contract import spool_dir
from infra.errors import EnvironmentFault, NotFoundError
from infra.storage import Storage

BUILDS_FILE = "builds.json"

_SPOOLS = "spool"


def note_builds(spool: Storage, work: str, builds: Mapping[str, str]) -> None:
    """Note in a run's spool what the run is made with.

    Args:
        spool: of the run.
        work: digest of source and configuration, without the builds.
        builds: library -> version.
    """
    spool.write_atomic(BUILDS_FILE, json.dumps({"work": work, "builds": dict(builds)}).encode())


def check_builds(dataset: Storage, run: str, work: str, builds: Mapping[str, str]) -> None:
    """Hold this run's builds against those of unfinished runs of the same work.

    Args:
        dataset: the dataset's folder.
        run: digest of this run; what it left itself it goes on from.
        work, builds: as in ``note_builds``.

    Raises:
        EnvironmentFault: there is an unfinished run under other builds, and none under these.
    """
    runs = dataset.list_folders(_SPOOLS)
    if run in runs:
        return
    for other in sorted(runs):
        spool = dataset.child(spool_dir(other))
        try:
            note = json.loads(spool.read_bytes(BUILDS_FILE))
        except (NotFoundError, ValueError):
            continue  # being removed, or never begun
        if note["work"] == work and note["builds"] != dict(builds):
            then, now = _differences(note["builds"], builds)
            raise EnvironmentFault(
                f"an unfinished run of this source and configuration was made with {then}, "
                f"this one with {now}",
                f"install what it was made with, and it goes on; or delete {spool.uri} to begin anew",
            )


def _differences(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, str]:
    """The builds in which two runs differ, in words."""
    names = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))

    def told(builds: Mapping[str, str]) -> str:
        return ", ".join(f"{name} {builds.get(name, 'none')}" for name in names)

    return told(then), told(now)
