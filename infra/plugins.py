"""Plugins: what other distributions add to Shardmill by entry points, found by group and name.

Entry points are looked up when a name is asked for that Shardmill does not have, or when names are listed. A
plugin is imported when it is used. So one that is broken costs itself only. A name that Shardmill or another
distribution has too is refused: nothing hides anything.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from shardmill.infra import release
from shardmill.infra.errors import ConfigError, EnvironmentFault, ShardmillError
from shardmill.infra.extras import missing_library
from shardmill.infra.own_code import OwnCode, place_of

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_VALUE = re.compile(r"(?P<module>\w+(?:\.\w+)*)\s*(?::\s*(?P<object>\w+(?:\.\w+)*))?\s*(?:\[.*\])?")


@dataclass(frozen=True, slots=True)
class Plugin(OwnCode):
    """An object in a module of another distribution.

    Methods raise ``ConfigError``, which names the distribution, the entry point and the cause: the plugin
    cannot be imported, or is no object of its group. ``EnvironmentFault``: it needs an extra of Shardmill.

    Attributes:
        name: its name in settings.
        value: what the entry point names: ``module`` or ``module:object``.
        distribution: the distribution that it comes from.
        version: the version of the distribution.
        refusal: why its name or value cannot be used; empty: they can.
        problem: see ``Plugins``.
    """

    name: str
    value: str
    distribution: str
    version: str
    refusal: str
    problem: Callable[[Any], str | None]

    def is_below(self, folder: Path) -> bool:
        """Return False: a plugin is installed, wherever its files lie."""
        return False

    def check(self) -> None:
        """Check that its module is there, without running it."""
        with self._naming_it():
            self._found()

    def load(self) -> ModuleType:
        """Import its module, which has the object."""
        self.load_function()
        return sys.modules[self.module]

    def load_function(self) -> Any:
        """Import its module and return the object."""
        with self._naming_it():
            self._found()
            found = attrgetter(self.function)(importlib.import_module(self.module))
            if problem := self.problem(found):
                raise ConfigError(problem)
        return found

    def unusable(self, cause: str) -> ConfigError:
        """Return the error that names the plugin and the cause."""
        return ConfigError(
            f"{self.setting} cannot be used: {cause}",
            f"mend or uninstall {self.distribution}; shardmill plugins lists all plugins",
        )

    @contextmanager
    def _naming_it(self) -> Iterator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:
            missing = missing_library(error)
            if missing is not None:
                raise EnvironmentFault(f"{self.setting}: {missing.message}", missing.remedy) from error
            raise self.unusable(self._cause(error)) from error

    def _cause(self, error: BaseException) -> str:
        if isinstance(error, ShardmillError):
            return error.message.removeprefix(f"{self.setting}: ")
        place = place_of(error, {self.module.partition(".")[0]: self.setting})
        message = (str(error).strip().splitlines() or [""])[0]
        return f"{'' if place is None else f'{place[0]}, failed: '}{type(error).__name__}: {message}"


@dataclass(frozen=True)
class Plugins:
    """The plugins of a group of entry points.

    Attributes:
        group: the name of the group.
        setting: how a setting names one, for errors: ``model.name = {!r}``.
        page: the page of the documentation about such code.
        default: the object of an entry point that names a module alone; empty: each must name an object.
        is_built_in: tells whether a name is one of Shardmill's own.
        problem: returns why an object is no plugin of this group; None: it is one.
        takes_modules: an entry point names a module alone.
    """

    group: str
    setting: str
    page: str
    default: str
    is_built_in: Callable[[str], bool]
    problem: Callable[[Any], str | None]
    takes_modules: bool = False

    def installed(self) -> tuple[Plugin, ...]:
        """Return all plugins of the group, also those that are refused, sorted by name."""
        return _of_group(self)

    def names(self) -> list[str]:
        """Return the names that are not refused, sorted; whether they can be imported is not known."""
        return [plugin.name for plugin in self.installed() if not plugin.refusal]

    def find(self, name: str) -> Plugin | None:
        """Return the plugin of a name that Shardmill does not have; None: there is none.

        Raises:
            ConfigError: it is refused.
        """
        found = next((plugin for plugin in self.installed() if plugin.name == name), None)
        if found is not None and found.refusal:
            raise found.unusable(found.refusal)
        return found


def versions_of(code: Iterable[OwnCode | None]) -> dict[str, str]:
    """Return distribution -> version, of the plugins among some code."""
    return {one.distribution: one.version for one in code if isinstance(one, Plugin)}


@cache
def _of_group(plugins: Plugins) -> tuple[Plugin, ...]:
    found = [(point, *provider_of(point)) for point in entry_points(group=plugins.group)]
    made = []
    for point, distribution, version in found:
        others = [f"{who} {what}" for one, who, what in found if one.name == point.name and one is not point]
        value = _VALUE.fullmatch(point.value.strip())
        setting = (
            f"{plugins.setting.format(point.name)} of the distribution {distribution} {version} "
            f"(entry point {point.name} = {point.value} of {plugins.group})"
        )
        made.append(
            Plugin(
                setting,
                "" if value is None else value["module"],
                "" if value is None else value["object"] or plugins.default,
                plugins.page,
                point.name,
                point.value,
                distribution,
                version,
                _refusal(plugins, point.name, value, [*_ours(plugins, point.name), *others]),
                plugins.problem,
            )
        )
    return tuple(sorted(made, key=lambda plugin: (plugin.name, plugin.distribution)))


def _ours(plugins: Plugins, name: str) -> list[str]:
    return [f"shardmill {release()}"] if plugins.is_built_in(name) else []


def _refusal(plugins: Plugins, name: str, value: re.Match[str] | None, others: list[str]) -> str:
    """Return why the name or the value of an entry point cannot be used; empty: it can."""
    if others:
        return f"{' and '.join(others)} {'have' if others[1:] else 'has'} this name too"
    if _NAME.fullmatch(name) is None:
        return "the name must begin with a letter, and have letters, digits, - and _ only"
    if value is None:
        return "the entry point names neither a module nor module:object"
    if plugins.takes_modules and value["object"]:
        return "the entry point must name a module alone"
    if not plugins.default and not value["object"]:
        return "the entry point must name an object, as in module:object"
    return ""


def provider_of(point: EntryPoint) -> tuple[str, str]:
    """Return the name and the version of the distribution of an entry point."""
    try:
        found = None if point.dist is None else (point.dist.name, point.dist.version)
    except (KeyError, TypeError):  # its file METADATA is missing or damaged
        found = None
    return ("unknown", "unknown") if found is None else (str(found[0]), str(found[1]))
