"""A MkDocs hook: the page commands.md lists every command of ``shardmill`` with its arguments and options.

It is made from the command line itself, as ``shardmill COMMAND --help`` is, so the repository has no copy.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Any

import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from flows.cli.app import app

_INTRODUCTION = """\
# Commands

The commands of `shardmill`, with their arguments and options. `shardmill COMMAND --help` prints the same.

"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    files.append(File.generated(config, "commands.md", content=render()))
    return files


def render() -> str:
    """The whole page."""
    return _INTRODUCTION + "\n".join(_sections(typer.main.get_command(app), "shardmill"))


def _sections(command: Any, path: str) -> Iterator[str]:
    """Sections of a command, or of every command of a group, in the order of ``--help``."""
    for name in command.list_commands(None):
        inner = command.commands[name]
        if inner.hidden:
            continue
        if hasattr(inner, "commands"):
            yield from _sections(inner, f"{path} {name}")
        else:
            yield _section(inner, f"{path} {name}")


def _section(command: Any, path: str) -> str:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    arguments = [parameter for parameter in shown if parameter.param_type_name == "argument"]
    usage = " ".join([path, *(_usage(argument) for argument in arguments), "[OPTIONS]"])
    rows = [
        f"| {_name(parameter)} | {_text(parameter.help or '')}{_default(parameter)} |" for parameter in shown
    ]
    table = ["| | |", "|---|---|", *rows] if rows else []
    return "\n".join([f"## {path}", "", f"`{usage}`", "", _help(command.help), "", *table, ""])


def _help(text: str) -> str:
    """The help of a command: paragraphs, and its examples as a block of code."""
    described, _, examples = text.replace("\b", "").partition("[bold]Examples[/bold]")
    paragraphs = [_text(paragraph) for paragraph in described.split("\n\n")]
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    return "\n\n".join([*filter(None, paragraphs), *(["\n".join(["```", *lines, "```"])] if lines else [])])


def _usage(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper()).strip("[]") + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_usage(parameter)}`"
    value = "" if parameter.is_flag else f" {parameter.metavar or 'VALUE'}"
    names = "/".join([parameter.opts[-1], *parameter.secondary_opts[-1:]])
    return f"`{names}{value}`".replace("|", "\\|")


def _default(parameter: Any) -> str:
    value = parameter.default
    if (
        parameter.required
        or isinstance(value, bool)
        or not isinstance(value, str | int | float)
        or value == ""
    ):
        return ""
    return f" Default: `{value}`."


def _text(text: str) -> str:
    return html.escape(" ".join(text.split()), quote=False).replace("|", "\\|")
