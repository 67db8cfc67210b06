"""Find a launcher by its name. Its module, and packages that it needs, load only then."""

from __future__ import annotations

import importlib
import importlib.util
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal

from shardmill.infra.errors import ConfigError
from shardmill.training.ranks.launchers.outer import JobFiles, OuterJob
from shardmill.training.ranks.supervision.hosts import RankHosts
from shardmill.training.ranks.supervision.slots import RankCount

LauncherName = Literal["local", "ray", "slurm", "kubernetes"]


@dataclass(frozen=True, slots=True)
class _Launcher:
    """A launcher that can be named.

    Attributes:
        module: the module with its functions.
        package: the package that it needs, which is also the name of the extra; None: it needs nothing.
    """

    module: str
    package: str | None = None


_SUPERVISING: Final[dict[str, _Launcher]] = {
    "local": _Launcher("shardmill.training.ranks.launchers.local"),
    "ray": _Launcher("shardmill.training.ranks.launchers.ray.hosts", "ray"),
}
_RENDERING: Final[dict[str, _Launcher]] = {
    "slurm": _Launcher("shardmill.training.ranks.launchers.slurm.script"),
    "kubernetes": _Launcher("shardmill.training.ranks.launchers.kubernetes.manifest"),
}


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
        ConfigError: a package is missing, or there are fewer places than ranks.
    """
    hosts: AbstractContextManager[RankHosts] = _load(_SUPERVISING[name], name).open_hosts(
        count, devices, options
    )
    return hosts


def render(name: str, job: OuterJob, options: Any = None) -> JobFiles:
    """Return the files of a job, as a rendering launcher writes them.

    Args:
        name: its name.
        job: the work of the ranks.
        options: its table of settings.

    Raises:
        ConfigError: the job cannot be written with these settings.
    """
    files: JobFiles = _load(_RENDERING[name], name).render(job, options)
    return files


def _load(launcher: _Launcher, name: str) -> Any:
    package = launcher.package
    if package is not None and importlib.util.find_spec(package) is None:
        raise ConfigError(
            f"ranks.launcher = {name!r} needs the package {package}, which is not installed",
            f"pip install 'shardmill[{package}]' here and on all machines of the cluster",
        )
    return importlib.import_module(launcher.module)
