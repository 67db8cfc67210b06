"""Write Markdown that Prefect's web interface shows as meant, with links to the platform's own page.

The interface also takes the text of table cells and descriptions for Markdown, and shows a part of HTML. A
name that is not escaped could load pictures from other hosts.

A browser follows no ``file://`` link of a page that a server gave. Where `shardmill up` runs its page,
``SHARDMILL_PAGE_URL`` names it, and everything is linked there::

    <page>/datasets/NAME/VERSION            <page>/datasets/NAME/VERSION/report
    <page>/runs/RUN                         <page>/runs/RUN/report
    <page>/tensorboard/

Elsewhere the path is shown, with a command that opens it.
"""

from __future__ import annotations

import base64
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from shardmill.infra.html.page import visible
from shardmill.infra.readable import readable_figure

_LONGEST_TEXT = 1000  # characters of a message; names are shorter
# Characters with a meaning in Markdown: anywhere, in addresses that become links, and at the start of a line.
_MARKS = re.compile(r"[\\`*_\[\](){}<>&!|~#^]|:(?=//)|(?<=www)\.|^[-+=]|(?<=^\d)[.)]", re.IGNORECASE)
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}

Row = Mapping[str, Any]


def escaped(text: str, longest: int = _LONGEST_TEXT) -> str:
    """Return Markdown that shows exactly this text, in one line."""
    line = " ".join(text.split())
    return _MARKS.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), visible(line, longest))


def unescaped(markdown: str) -> str:
    """Undo ``escaped``: return the text in one line, since line breaks are lost."""
    text = re.sub(r"\\(.)", r"\1", markdown)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def code(text: str) -> str:
    """Return Markdown that shows this text in one line of code: a path or a command."""
    shown = visible(" ".join(text.split()), _LONGEST_TEXT)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    edge = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{edge}{shown}{edge}{fence}"


def code_block(text: str) -> str:
    """Return a code block of these lines."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    lines = [visible(line, _LONGEST_TEXT) for line in text.splitlines()]
    return "\n".join([f"{fence}text", *lines, fence])


def link(words: str, address: str) -> str:
    """Return a link. Only for trusted words and addresses: the text of a link cannot be escaped."""
    return f"[{words}]({address})"


def picture(alt: str, uri: str) -> str:
    """Return a picture from a data URI; ``alt`` is for those who cannot see it."""
    return f"![{escaped(alt)}]({uri})"


def svg_uri(svg: str) -> str:
    """Return the data URI of a picture: a browser shows it without a request."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode("ascii")


def cell(value: object) -> str:
    """Return a value as Markdown: numbers with at most four significant digits, text escaped."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return readable_figure(value)
    return escaped(str(value))


def table(rows: Sequence[Row]) -> str:
    """Return a table with a column for each key of the first row; the values are escaped."""
    if not rows:
        return ""
    names = list(rows[0])
    return markdown_table(names, [[cell(row.get(name)) for name in names] for row in rows])


def markdown_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose cells are Markdown already."""
    lines = [_line([escaped(name) for name in names]), _line(["---"] * len(names))]
    return "\n".join([*lines, *(_line(row) for row in rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows of a table artifact: floats rounded to four digits, text escaped."""
    return [{name: _table_value(value) for name, value in row.items()} for row in rows]


def _table_value(value: object) -> object:
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)  # JSON has no such numbers
        return float(f"{value:.4g}") if abs(value) < 1000 else round(value)
    return escaped(value) if isinstance(value, str) else value


PAGE_URL = "SHARDMILL_PAGE_URL"


def page_url() -> str | None:
    """Return the address of the platform's page, without a slash at its end; None: it does not run."""
    return (os.environ.get(PAGE_URL) or "").rstrip("/") or None


def dataset_page(name: str, version: int) -> str | None:
    """Return the address of the page of a dataset version."""
    return _on_page("datasets", name, str(version))


def dataset_report(name: str, version: int) -> str | None:
    """Return the address of the report of a dataset version."""
    return _on_page("datasets", name, str(version), "report")


def run_page(run: str) -> str | None:
    """Return the address of the page of a training run, named by its folder."""
    return _on_page("runs", run)


def run_report(run: str) -> str | None:
    """Return the address of the report of a training run."""
    return _on_page("runs", run, "report")


def tensorboard() -> str | None:
    """Return the address of TensorBoard."""
    page = page_url()
    return f"{page}/tensorboard/" if page else None


def flow_run(run_id: object) -> str:
    """Return the address of a flow run, on the server that shows the link."""
    return f"/runs/flow-run/{run_id}"


def line(name: str, address: str | None, path: str, command: str) -> str:
    """Return a line of Markdown: a link; or, without an address, the path and the command that opens it."""
    if address is not None:
        return f"- {link(name, address)} {code(path)}"
    return f"- {name}: {code(path)}; on the machine that ran it: {code(command)}"


def _on_page(*parts: str) -> str | None:
    page = page_url()
    return None if page is None else "/".join([page, *(quote(part, safe="") for part in parts)])
