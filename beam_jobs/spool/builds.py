"""Unfinished work of other codec builds: never mixed with new work, and never silently left behind.

The builds are part of a run's digest, so other builds make other spools. A run notes its builds in its spool.
A run that finds an unfinished spool of the same source and configuration under other builds refuses to start:
a person must decide whether to install those builds or to delete that work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from shardmill.infra.errors import EnvironmentFault, NotFoundError
from shardmill.infra.format.layout import spool_dir
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json

BUILDS_FILE = "builds.json"

_SPOOLS = "spool"


def note_builds(spool: Storage, work: str, builds: Mapping[str, str]) -> None:
    """Note the builds of a run in its spool.

    Args:
        spool: folder of unfinished work of the run.
        work: digest of source and configuration, without the builds.
        builds: library -> version.
    """
    spool.write_atomic(BUILDS_FILE, dump_json({"work": work, "builds": dict(builds)}).encode())


def check_builds(dataset: Storage, run: str, work: str, builds: Mapping[str, str]) -> None:
    """Compare this run's builds with the builds of unfinished runs of the same work.

    Args:
        dataset: the dataset's folder.
        run: digest of this run, which continues its own work.
        work: digest of source and configuration, without the builds.
        builds: library -> version.

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
                f"install these versions to continue it, or delete {spool.uri} to begin anew",
            )


def _differences(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, str]:
    """Return the builds in which two runs differ, in words."""
    names = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))

    def told(builds: Mapping[str, str]) -> str:
        return ", ".join(f"{name} {builds.get(name, 'none')}" for name in names)

    return told(then), told(now)
