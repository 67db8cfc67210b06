"""Write the parts of two pages that the code lists: `python docs/reference_tables.py`.

They are the reasons of `docs/recover-from-failures.md` and the columns of `docs/dataset-format.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from shardmill.beam_jobs.reasons import FILTER_REASONS, QUARANTINE_REASONS, explain
from shardmill.infra.format.contract import INDEX_COLUMNS

REASONS = Path(__file__).with_name("recover-from-failures.md")
COLUMNS = Path(__file__).with_name("dataset-format.md")
_BEGIN, _END = "<!-- written by docs/reference_tables.py -->\n", "<!-- end -->\n"


def render(page: Path) -> str:
    """Return a page with the list of the code."""
    before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{_reasons() if page == REASONS else _columns()}{_END}{after}"


def _reasons() -> str:
    return (
        f"\n**Quarantined**, with what to do:\n\n{_list(QUARANTINE_REASONS, remedies=True)}\n"
        f"**Filtered**, which counts against no budget:\n\n{_list(FILTER_REASONS, remedies=False)}\n"
    )


def _list(reasons: Iterable[str], *, remedies: bool) -> str:
    """A line a reason, with its meaning and, if asked for, its remedy."""
    lines = []
    for reason in sorted(reasons):
        meaning, remedy = explain(reason)
        lines.append(f"- `{reason}`: {meaning}." + (f" {remedy}." if remedies else ""))
    return "\n".join(lines) + "\n"


def _columns() -> str:
    """A line for neighbouring columns of one type and meaning."""
    lines = ["\n| column | |\n|---|---|"]
    for (kind, meaning), columns in groupby(INDEX_COLUMNS, INDEX_COLUMNS.__getitem__):
        name = f"list of {kind.value_type}" if pa.types.is_list(kind) else kind
        type_name = str(name).replace("float", "float32")
        lines.append(f"| {', '.join(f'`{column}`' for column in columns)} {type_name} | {meaning} |")
    return "\n".join(lines) + "\n\n"


if __name__ == "__main__":
    for each in (REASONS, COLUMNS):
        each.write_text(render(each), encoding="utf-8")
