"""Define the tree of commands: the section, group and order of each in ``shardmill --help``.

A group is a command with commands of its own. ``up``, ``down`` and ``status``, which one types most, stand
on top too. The names of the last release are in ``shardmill.flows.cli.old_names``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from shardmill.flows.cli.datasets import catalog, maintenance, removing
from shardmill.flows.cli.datasets.diff import diff
from shardmill.flows.cli.datasets.export import export
from shardmill.flows.cli.datasets.report import report
from shardmill.flows.cli.datasets.verify import sign, verify
from shardmill.flows.cli.help import Command, Group
from shardmill.flows.cli.jobs import commands as jobs
from shardmill.flows.cli.jobs.profile import profile
from shardmill.flows.cli.jobs.searching import settings
from shardmill.flows.cli.server import backup, schedule, service
from shardmill.flows.cli.server.backup import reap
from shardmill.flows.cli.server.notify import notify
from shardmill.flows.cli.server.own_server import deploy, server
from shardmill.flows.cli.server.page import page
from shardmill.flows.cli.server.status import status
from shardmill.flows.cli.training_runs import comparing, looking, promoting, using
from shardmill.flows.cli.training_runs.using import label_errors

_PREPARE, _DATASETS, _MODELS, _KEEP, _PLATFORM = (
    "Prepare and train",
    "Look at datasets",
    "Training runs and models",
    "Keep datasets",
    "Platform: schedules, pages, notifications",
)


@dataclass(frozen=True, slots=True)
class Branch:
    """A group of commands.

    Attributes:
        name: as one types it.
        help: its first sentence stands in the list of commands.
        commands: the functions behind its commands.
    """

    name: str
    help: str
    commands: Sequence[Callable[..., Any]]


MODEL = Branch(
    "model",
    "Aliases such as photos@production: promote, rollback, aliases.",
    (promoting.promote, promoting.rollback, promoting.aliases),
)
SCHEDULE = Branch(
    "schedule",
    "Start runs automatically: add, list, pause, resume, remove. The server of `shardmill up` does it.",
    (schedule.add, schedule.list_, schedule.pause, schedule.resume, schedule.remove),
)
PLATFORM = Branch(
    "platform",
    "up, down, status, page, backup, restore, deploy, server, reap. The last three: your own server.",
    (
        service.up,
        service.down,
        status,
        page,
        backup.backup,
        backup.restore,
        deploy,
        server,
        reap,
    ),
)
TREE: tuple[tuple[str, tuple[Callable[..., Any] | Branch, ...]], ...] = (
    (_PREPARE, (jobs.run, jobs.prepare, jobs.train, settings)),
    (
        _DATASETS,
        (
            catalog.datasets,
            catalog.show,
            removing.versions,
            diff,
            report,
            catalog.locate,
            verify,
            export,
            profile,
        ),
    ),
    (
        _MODELS,
        (looking.runs, comparing.compare, using.evaluate, using.predict, label_errors, MODEL),
    ),
    (
        _KEEP,
        (maintenance.rollback, removing.rm, maintenance.compact, maintenance.gc, maintenance.purge, sign),
    ),
    (_PLATFORM, (service.up, service.down, status, SCHEDULE, notify, PLATFORM)),
)


def name_of(command: Callable[..., Any]) -> str:
    """The name that one types. A function named like a built-in of Python ends in an underscore."""
    return command.__name__.rstrip("_").replace("_", "-")


def add_to(app: typer.Typer) -> None:
    """Add all commands to the application."""
    for section, entries in TREE:
        for entry in entries:
            if isinstance(entry, Branch):
                group = typer.Typer(cls=Group, help=entry.help, no_args_is_help=True)
                for command in entry.commands:
                    group.command(name_of(command), cls=Command)(command)
                app.add_typer(group, name=entry.name, rich_help_panel=section)
            else:
                app.command(name_of(entry), cls=Command, rich_help_panel=section)(entry)
