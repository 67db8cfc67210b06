"""Options, configuration and errors that the commands of the jobs share."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from shardmill.infra import progress as events
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.storage.locations import default_root
from shardmill.infra.strict_json import dump_json

if TYPE_CHECKING:  # a command line is read, and a child started, before settings are loaded
    from shardmill.infra.settings import Settings
import sys

S = TypeVar("S", bound="Settings")
_PART = 30_000  # characters; Linux takes arguments of 128 KiB


class JobParser(argparse.ArgumentParser):
    """A parser of ``python -m ...``: no abbreviations, and mistakes are ``UsageError`` s like all others."""

    def __init__(self, prog: str, description: str, epilog: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError."""
        raise UsageError(message, f"{self.prog} --help lists the options")

    def add_job_arguments(self, section: str) -> None:
        """Add --root, --config, --set, --config-json and --json; ``section`` is the table of the file."""
        self.add_argument(
            "--root",
            default=default_root(),
            metavar="DIR",
            help="folder of the datasets ($SHARDMILL_ROOT or ./datasets)",
        )
        self.add_argument("--config", metavar="FILE", help=f"TOML file with a table [{section}]")
        self.add_argument(
            "--set",
            dest="overrides",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="one setting; repeatable",
        )
        self.add_argument(
            "--config-json",
            action="append",
            metavar="JSON",
            help="settings as JSON, also in several parts; they win over all others",
        )
        self.add_argument("--json", action="store_true", help="print the result as JSON, as the last line")


def config_arguments(settings: str) -> list[str]:
    """Return the arguments that give settings, as JSON, to a command: in parts, since each has a limit."""
    first, *others = [settings[at : at + _PART] for at in range(0, len(settings), _PART)]
    return ["--config-json", first, *(f"--config-json={part}" for part in others)]


def settings_of(
    arguments: argparse.Namespace, model: type[S], section: str, *, recipe: Path | None = None, **given: Any
) -> S:
    """The configuration that a command line makes; ``given`` wins over all but is left out where None.

    Args:
        arguments: the parsed command line, with the options of ``JobParser.add_job_arguments``.
        model: the model of the configuration.
        section: the table of the file.
        recipe: a configuration file over which all others win.
        **given: single values.

    Raises:
        ConfigError: a setting is wrong.
    """
    from shardmill.infra.settings import load_settings

    try:
        values = json.loads("".join(arguments.config_json)) if arguments.config_json else {}
    except ValueError as error:
        raise ConfigError(f"--config-json is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError("--config-json is not a JSON object")
    values |= {name: value for name, value in given.items() if value is not None}
    return load_settings(
        model,
        section=section,
        recipe=recipe,
        config=arguments.config,
        overrides=arguments.overrides,
        given=values,
    )


def deliver(
    arguments: argparse.Namespace,
    result: dict[str, Any],
    summary: Callable[[dict[str, Any]], str] | None = None,
) -> None:
    """Hand the result of a command to its parent, and print it as JSON or as a summary for people.

    Args:
        arguments: the parsed command line, with ``--json``.
        result: the result, JSON-able.
        summary: returns the lines for people; None: the command has printed them.
    """
    events.result(result)
    if arguments.json:
        print(dump_json(result), flush=True)
    elif summary is not None and not events.events_go_to_parent():
        print(summary(result), flush=True)


def python_module(module: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """Return the command that runs a module with arguments.

    ``-P`` keeps the working directory off the path of the process and of those that ``multiprocessing``
    starts there: files of the user, such as ``random.py``, must not hide modules of Python or of libraries.

    Args:
        module: its dotted name.
        *arguments: its arguments.
        python: the interpreter.
    """
    return [python, "-P", "-m", module, *arguments]
