"""Print results on standard output, as tables for people or as JSON for programs; notes on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardmill.infra.readable import counted as counted
from shardmill.infra.readable import printable
from shardmill.infra.strict_json import dump_json

_PLAIN_WIDTH = 120

JsonObject = Mapping[str, Any]


def print_json(value: JsonObject) -> None:
    """Print a JSON object as one line."""
    print(dump_json(value, default=str), flush=True)


@contextlib.contextmanager
def nothing_on_stdout() -> Iterator[None]:
    """Redirect the output of libraries to standard error, so that standard output has only the result."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def note(text: str) -> None:
    """Print a line for people on standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def say(*lines: str) -> None:
    """Print lines for people on standard output."""
    for line in lines:
        print(printable(line))
    sys.stdout.flush()


def answer(value: JsonObject, json_output: bool, *lines: str) -> None:
    """Print the result of a command: a JSON object for programs, or lines for people."""
    if json_output:
        print_json(value)
    else:
        say(*lines)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; columns of numbers are aligned right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Names come from file names: nothing in them is markup.
    table = Table(
        title=Text(printable(title)) if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title_style="bold",
    )
    for index, column in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[index], int | float) or row[index] == "" for row in rows)
        table.add_column(Text(printable(column)), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    # A pipe has no width: do not fold at a guess.
    width = None if sys.stdout.isatty() else _PLAIN_WIDTH
    Console(file=sys.stdout, width=width, highlight=False).print(table)


def cell(value: object) -> str:
    """The text of a value for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return printable(str(value))
