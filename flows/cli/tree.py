"""Define the tree of commands: the section, group and order of each in ``shardmill --help``.

A group is a command with commands of its own. ``up``, ``down`` and ``status``, which one types most, stand
on top too. The names of the last release are in ``shardmill.flows.cli.old_names``.

A command is named by its module below ``shardmill.flows.cli`` and its function. The module is imported when
a command line names the command; a list of commands needs only the first sentences of the docstrings.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
import typer.main
from typer.core import TyperCommand

from shardmill.flows.cli.help import Command, Group


@dataclass(frozen=True, slots=True)
class Branch:
    """A group of commands.

    Attributes:
        name: as one types it.
        help: its first sentence stands in the list of commands.
        commands: each as ``MODULE:FUNCTION``.
    """

    name: str
    help: str
    commands: Sequence[str]


_UP_AND_DOWN = ("server.service:up", "server.service:down", "server.status:status")
MODEL = Branch(
    "model",
    "Aliases such as photos@production: promote, rollback, aliases.",
    (
        "runs.promoting:promote",
        "runs.promoting:rollback",
        "runs.promoting:aliases",
    ),
)
SCHEDULE = Branch(
    "schedule",
    "Start runs automatically: add, list, pause, resume, remove. The server of `shardmill up` does it.",
    (
        "server.schedule:add",
        "server.schedule:list_",
        "server.schedule:pause",
        "server.schedule:resume",
        "server.schedule:remove",
    ),
)
PLATFORM = Branch(
    "platform",
    "up, down, status, page, backup, restore, deploy, server, reap. The last three: your own server.",
    (
        *_UP_AND_DOWN,
        "server.own_server:page",
        "server.backup:backup",
        "server.backup:restore",
        "server.own_server:deploy",
        "server.own_server:server",
        "server.backup:reap",
    ),
)
REVIEW = Branch(
    "review",
    "Decide about what was found: list, decide, export, import.",
    ("datasets.review:list_", "datasets.review:decide", "datasets.review:export", "datasets.review:import_"),
)
TREE: dict[str, tuple[str | Branch, ...]] = {
    "Prepare and train": (
        "demo.command:demo",
        "runs.commands:run",
        "runs.commands:prepare",
        "runs.commands:train",
        "runs.searching:settings",
        "runs.plugins:plugins",
    ),
    "Look at datasets": (
        "datasets.catalog:datasets",
        "datasets.catalog:show",
        "datasets.removing:versions",
        "datasets.diff:diff",
        "datasets.report:report",
        "datasets.catalog:locate",
        "datasets.verify:verify",
        "datasets.export:export",
        "datasets.push:push",
        REVIEW,
        "runs.profile:profile",
    ),
    "Training runs and models": (
        "runs.looking:runs",
        "runs.looking:compare",
        "runs.using:evaluate",
        "runs.using:predict",
        "runs.using:label_errors",
        MODEL,
    ),
    "Keep datasets": (
        "datasets.maintenance:rollback",
        "datasets.removing:rm",
        "datasets.maintenance:compact",
        "datasets.maintenance:gc",
        "datasets.maintenance:purge",
        "datasets.verify:sign",
    ),
    "Platform: schedules, pages, notifications": (
        *_UP_AND_DOWN,
        "server.notify:notify",
        SCHEDULE,
        PLATFORM,
    ),
}


class Unloaded(TyperCommand):
    """A command whose module is not imported yet.

    Args:
        place: its module and function, as in the tree.
        section: the title above it in a list of commands.
    """

    def __init__(self, place: str, section: str | None = None) -> None:
        self._module, _, self._function = place.partition(":")
        super().__init__(name_of(place), rich_help_panel=section)

    def loaded(self) -> Any:
        """Import the module, and return the command with its options."""
        function = getattr(import_module(f"shardmill.flows.cli.{self._module}"), self._function)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(self.name, cls=Command)(function)
        return typer.main.get_command(alone)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the arguments of the command."""
        return self.loaded().make_context(*args, **kwargs)

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first sentence of the docstring of its function."""
        return _docstrings(self._module)[self._function].partition("\n\n")[0].partition(". ")[0]


@cache
def _docstrings(module: str) -> dict[str, str]:
    """The docstrings of the functions of a module, read from its file."""
    path = Path(__file__).parent.joinpath(*module.split(".")).with_suffix(".py")
    functions = (one for one in ast.parse(path.read_bytes()).body if isinstance(one, ast.FunctionDef))
    return {one.name: ast.get_docstring(one) or "" for one in functions}


def name_of(place: str) -> str:
    """The name that one types. A function named like a built-in of Python ends in an underscore."""
    return place.partition(":")[2].rstrip("_").replace("_", "-")


def add_to(group: Any) -> None:
    """Add all commands to the group of the application."""
    for section, entries in TREE.items():
        for entry in entries:
            if isinstance(entry, Branch):
                inner = Group(name=entry.name, help=entry.help, no_args_is_help=True, rich_help_panel=section)
                for place in entry.commands:
                    inner.add_command(Unloaded(place))
                group.add_command(inner)
            else:
                group.add_command(Unloaded(entry, section))


def all_commands(group: Any, path: str = "shardmill") -> Iterator[tuple[str, Any]]:
    """Yield the path and the command of every command of a group, in the order of its help."""
    for name, command in group.commands.items():
        if isinstance(command, Unloaded):
            yield f"{path} {name}", command.loaded()
        else:
            yield from all_commands(command, f"{path} {name}")
