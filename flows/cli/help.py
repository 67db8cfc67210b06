"""Write the help pages of commands: usage, options, and one line for each command of a group."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from typer.core import TyperCommand, TyperGroup

from shardmill.infra.errors import UsageError
from shardmill.infra.readable import shortened

F = TypeVar("F", bound=Callable[..., Any])

Rows = Sequence[tuple[str, str]]

_WIDEST = 100
_COLUMN = 30  # where explanations begin, unless all names are shorter
_EXAMPLES = "Examples:"


class Command(TyperCommand):
    """A command with a help page of this module, whose options take no empty text."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Raises:
            UsageError: an option is empty, as when a shell variable in its place is not set; or a folder is
                given to an option that takes a file.
        """
        for one in self.params:
            is_given = getattr(ctx.get_parameter_source(one.name), "name", "") == "COMMANDLINE"
            value, option = ctx.params.get(one.name), one.opts[0]
            if is_given and not is_argument(one) and value == "":
                raise UsageError(f"{option} is empty", f"{typed(one)}: {explained(one)}; or leave it out")
            names_a_file = (one.metavar or "").startswith("FILE") and isinstance(value, str | Path)
            if names_a_file and Path(value).is_dir():
                raise UsageError(f"{option} {value} is a folder", f"name a file: {typed(one)}")
        return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page."""
        formatter.write("\n".join(_command_page(self, ctx.command_path, _width())) + "\n")


class Group(TyperGroup):
    """Commands under a common name; a page lists them with one line each."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page."""
        formatter.write("\n".join(_group_page(self, ctx.command_path, _width())) + "\n")


def explained_below(rows: Callable[[], tuple[str, Rows]]) -> Callable[[F], F]:
    """Add a title and rows of (name, explanation) below the help of a command, made when it is asked for."""

    def marked(command: F) -> F:
        command.below = rows  # type: ignore[attr-defined]
        return command

    return marked


def described(text: str | None) -> tuple[list[str], list[str]]:
    """The paragraphs of the help of a command, each on one line, and its examples."""
    words, _, examples = (text or "").partition(_EXAMPLES)
    paragraphs = [" ".join(part.split()) for part in words.split("\n\n") if part.strip()]
    return paragraphs, [line.strip() for line in examples.splitlines() if line.strip()]


def usage(command: Any, path: str) -> str:
    """Return the usage line: the command, its arguments and its required options."""
    arguments = [typed(one) for one in shown(command) if is_argument(one)]
    needed = [typed(one) for one in shown(command) if one.required and not is_argument(one)]
    return " ".join([path, *arguments, *needed, "[OPTIONS]"])


def shown(command: Any) -> list[Any]:
    """The parameters of a command that help shows."""
    return [one for one in command.params if not getattr(one, "hidden", False)]


def is_argument(parameter: Any) -> bool:
    """Whether a parameter is an argument, not an option."""
    return bool(parameter.param_type_name == "argument")


def typed(parameter: Any) -> str:
    """A parameter as one types it: ``SOURCE``, ``[NAME]``, ``--dataset NAME`` or ``--apply/--dry-run``."""
    if is_argument(parameter):
        name = (parameter.metavar or parameter.name.upper()).removesuffix("...")
        name = name.removeprefix("[").removesuffix("]") if name.startswith("[") else name
        name += "..." if parameter.nargs == -1 else ""
        return name if parameter.required else f"[{name}]"
    names = ", ".join(sorted(parameter.opts, key=len))
    names = "/".join([names, *parameter.secondary_opts[-1:]])
    return names if parameter.is_flag else f"{names} {parameter.metavar or 'VALUE'}"


def explained(parameter: Any) -> str:
    """The explanation of a parameter, with its bounds and its default."""
    low, high = parameter.min, parameter.max
    bounds = {
        (True, True): f"{low} to {high}",
        (True, False): f"at least {low}",
        (False, True): f"at most {high}",
    }.get((low is not None, high is not None))
    default = parameter.default
    is_told = isinstance(default, str | int | float) and not isinstance(default, bool) and default != ""
    notes = [
        *([bounds] if bounds else []),
        *([f"default: {getattr(default, 'value', default)}"] if is_told and not parameter.required else []),
        *([f"env: {parameter.envvar}"] if getattr(parameter, "envvar", None) else []),
        *(["required"] if parameter.required and not is_argument(parameter) else []),
    ]
    return " ".join([(parameter.help or "").strip(), *([f"[{'; '.join(notes)}]"] if notes else [])]).strip()


def one_line(command: Any) -> str:
    """The first sentence of the help of a command, without its full stop."""
    return str(command.get_short_help_str(limit=1000)).rstrip(".")


def _command_page(command: Any, path: str, width: int) -> Iterator[str]:
    paragraphs, examples = described(command.help)
    yield from _wrapped(f"Usage: {usage(command, path)}", width, hanging=8)
    for paragraph in paragraphs:
        yield ""
        yield from _wrapped(paragraph, width)
    if examples:
        yield from ("", _EXAMPLES, *(f"  {line}" for line in examples))
    yield from _parameters(command, width)
    below = getattr(command.callback, "below", None)
    if below is not None:
        title, rows = below()
        yield from ("", title, *_rows(rows, width))


def _group_page(group: Any, path: str, width: int) -> Iterator[str]:
    """Write the page of a group: its commands under the titles of their sections."""
    paragraphs, examples = described(group.help)
    yield f"Usage: {path} COMMAND ...        {path} COMMAND --help"
    for paragraph in paragraphs:
        yield ""
        yield from _wrapped(paragraph, width)
    commands = {name: one for name, one in group.commands.items() if not one.hidden}
    column = max(map(len, commands), default=0) + 4
    sections = dict.fromkeys(one.rich_help_panel or "Commands" for one in commands.values())
    yield ""
    for section in sections:
        yield f"{section}:"
        for name, command in commands.items():
            if (command.rich_help_panel or "Commands") == section:
                yield f"  {name:{column - 2}}{shortened(one_line(command), width - column)}"
    if examples:
        yield from ("", _EXAMPLES, *(f"  {line}" for line in examples))


def _parameters(command: Any, width: int) -> Iterator[str]:
    for title, wants_arguments in (("Arguments", True), ("Options", False)):
        found = [one for one in shown(command) if is_argument(one) is wants_arguments]
        rows = [(typed(one), explained(one)) for one in found]
        if not wants_arguments:
            rows.append(("-h, --help", "Print this page"))
        if rows:
            yield from ("", f"{title}:", *_rows(rows, width))


def _rows(rows: Rows, width: int) -> Iterator[str]:
    column = min(_COLUMN, max(len(name) for name, _ in rows) + 4)
    for name, text in rows:
        first, *more = textwrap.wrap(text, width - column) or [""]
        if len(name) + 4 > column:
            yield f"  {name}"
            more, first = [first, *more], ""
        if first:
            yield f"  {name:{column - 2}}{first}"
        yield from (" " * column + line for line in more)


def _wrapped(text: str, width: int, hanging: int = 0) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=" " * hanging, break_on_hyphens=False)


def _width() -> int:
    return min(_WIDEST, shutil.get_terminal_size((80, 24)).columns)
