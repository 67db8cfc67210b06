"""Standard output: tables for people or one JSON object for programs. The rest is on standard error."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infra.terminal import printable
from infra.wording import counted as counted

_PLAIN_WIDTH = 120

JsonObject = Mapping[str, Any]


def print_json(value: JsonObject) -> None:
    """One line."""
    print(json.dumps(value, default=str), flush=True)


@contextlib.contextmanager
def nothing_on_stdout() -> Iterator[None]:
    """What libraries print goes to standard error meanwhile, so that the result is the last line of ours."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def note(text: str) -> None:
    """A line for people, on standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def say(*lines: str) -> None:
    """Lines for people, on standard output."""
    for line in lines:
        print(printable(line))
    sys.stdout.flush()


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table; columns of numbers are set right."""
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
    """A value as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return printable(str(value))


def readable_bytes(count: int) -> str:
    """``1.2 GiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def readable_seconds(seconds: float) -> str:
    """``4.2 s``, ``3 min 5 s``, ``2 h 10 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
