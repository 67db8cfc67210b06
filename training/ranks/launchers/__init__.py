"""Launchers start the ranks of a training on machines (``--launcher``), and are found here by their names.

Whoever starts the ranks, each of them trains in the same way: it finds the others by ``TF_CONFIG`` or by
``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT``, takes its part of each step of the one exact
order, and goes on from the last checkpoint of the run. A launcher is the module of this folder that has its
name. There are two kinds.

**Supervising launchers** (``local``, ``ray``): our parent runs for the whole training, restarts all ranks
when one fails, and grows again (``shardmill.training.ranks.supervision``). Such a launcher has

    open_hosts(count: RankCount, devices: str, options) -> context manager of RankHosts

where ``RankHosts`` chooses places for the ranks, as many as are there between least and most, starts a
process in each, and tells the parent of their beats, events, lines and ends. No process that it started may
outlive the context, nor the parent if it is killed.

**Rendering launchers** (``slurm``, ``kubernetes``): an outer system starts the ranks and restarts them. Such
a launcher has

    render(job: OuterJob, options) -> JobFiles

(``shardmill.training.ranks.launchers.outer``), a pure function: it writes nothing, and contacts nobody. Its
job must

* run ``job.command`` in as many processes as there are ranks, each with the variables named above. A rank is
  a small parent of the process that trains (``shardmill.training.run.ranks``), so it ends by
  itself: if the process dies or takes no step in time, if another rank is lost, and if the ranks do not find
  each other within ``ranks.start_timeout_seconds``;
* tell by the exit statuses of the ranks how to go on: end with success, start all ranks again, or end with
  failure. It starts all ranks again, never a single one;
* pass SIGTERM, or ``run.preemption_signal``, on to the ranks and wait ``job.stop_timeout_seconds`` before it
  kills them.

``options`` is the table of settings of the launcher, ``ranks.<name>``, if it has one
(``shardmill.training.ranks.launchers.settings``). The module and the package that it needs load only when
the launcher is used.
"""

from __future__ import annotations

import importlib
import importlib.util
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Literal

from shardmill.infra.extras import extra_for, lacking
from shardmill.training.ranks.devices import RankCount
from shardmill.training.ranks.launchers.outer import JobFiles, OuterJob

if TYPE_CHECKING:
    from shardmill.training.ranks.supervision.supervisor import RankHosts

LauncherName = Literal["local", "ray", "slurm", "kubernetes"]

_RENDERING: Final = ("slurm", "kubernetes")
_LIBRARIES: Final = {"ray": "ray", "kubernetes": "yaml"}  # launchers that need one


def is_rendering(name: str) -> bool:
    """Return whether the launcher only writes files of a job, whose ranks an outer system starts."""
    return name in _RENDERING


def open_hosts(
    name: str, count: RankCount, devices: str, options: Any = None
) -> AbstractContextManager[RankHosts]:
    """Return the places for ranks that a supervising launcher has.

    Args:
        name: its name.
        count: how many ranks may train.
        devices: ``run.devices``.
        options: its table of settings.

    Raises:
        ConfigError: there are fewer places than ranks. EnvironmentFault: a library is not installed.
    """
    hosts: AbstractContextManager[RankHosts] = _module(name).open_hosts(count, devices, options)
    return hosts


def render(name: str, job: OuterJob, options: Any = None, framework: str = "") -> JobFiles:
    """Return the files of a job, as a rendering launcher writes them.

    Args:
        name: its name.
        job: the work of the ranks.
        options: its table of settings.
        framework: ``run.framework``, whose extra is named if a library is missing.

    Raises:
        ConfigError: the job cannot be written with these settings.
        EnvironmentFault: a library is not installed.
    """
    files: JobFiles = _module(name, framework).render(job, options)
    return files


def _module(name: str, framework: str = "") -> Any:
    library = _LIBRARIES.get(name)
    if library is not None and importlib.util.find_spec(library) is None:
        extra = extra_for(library, [framework]) or name
        raise lacking(f"ranks.launcher = {name!r}", library, extra)
    return importlib.import_module(f"{__name__}.{name}")
