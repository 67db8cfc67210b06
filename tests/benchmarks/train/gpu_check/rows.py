"""The table of the GPU check: a row for each thing measured, for terminals, Markdown and JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from rich import box
from rich.console import Console
from rich.table import Table

# The row that no reader can exceed, and the end of the names of the rows that are compared with it.
LIMIT, INTO_DEVICE = "decoder alone", "into the device"


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. A value that was not measured is None.

    Attributes:
        what: what was measured.
        images_per_second: its rate.
        ratio: its rate ÷ that of the row named by ``beside``.
        beside: the other row.
        wait_ms: time that the loop waited for a batch, mean of the steps (ms).
        cpu_micros: processor time of the process and its workers, of an image (µs).
        gpu_bytes: the most memory that the framework took of the GPU.
        host_bytes: the memory of the process and its descendants after the last step.
        note: anything else, such as why it failed.
    """

    what: str
    images_per_second: float | None = None
    ratio: float | None = None
    beside: str = ""
    wait_ms: float | None = None
    cpu_micros: float | None = None
    gpu_bytes: int | None = None
    host_bytes: int | None = None
    note: str = ""

    def compared(self, other: Row) -> Row:
        """Return this row with the ratio of its rate to that of another."""
        ours, theirs = self.images_per_second, other.images_per_second
        if not ours or not theirs:
            return self
        return replace(self, ratio=ours / theirs, beside=other.what)

    def to_line(self) -> str:
        """Return the row as a line of JSON, for the parent of the process that measures."""
        return json.dumps({"row": asdict(self)})

    @staticmethod
    def from_line(line: str) -> Row | None:
        """Return the row of a line; None: a library printed the line."""
        try:
            return Row(**json.loads(line)["row"])
        except (ValueError, KeyError, TypeError):
            return None

    def __str__(self) -> str:
        named = zip(("", *COLUMNS[1:]), self.cells(), strict=True)
        return ", ".join(f"{name} {cell}".strip() for name, cell in named if cell)

    def cells(self) -> list[str]:
        """Return the texts of its columns."""
        return [
            self.what,
            _shown(self.images_per_second, ",.0f"),
            _shown(self.ratio, ".2f", f" of {self.beside}"),
            _shown(self.wait_ms, ".1f"),
            _shown(self.cpu_micros, ",.0f"),
            _shown(self.gpu_bytes and self.gpu_bytes / 1e9, ".1f"),
            _shown(self.host_bytes and self.host_bytes / 1e9, ".1f"),
            self.note,
        ]


COLUMNS = ("", "images/s", "ratio", "input wait, ms a step", "CPU µs an image", "GPU GB", "host GB", "")


def markdown(rows: Iterable[Row]) -> str:
    """Return a table of rows."""
    found = Table(*COLUMNS, box=box.MARKDOWN)
    for row in rows:
        found.add_row(*row.cells())
    text = io.StringIO()
    Console(file=text, width=10_000).print(found)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines() if line.strip()) + "\n"


def _shown(value: float | None, form: str, after: str = "") -> str:
    return "" if value is None else f"{value:{form}}{after}"
