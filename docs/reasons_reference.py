"""Write the reasons of `docs/recover-from-failures.md` from the code: `python docs/reasons_reference.py`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shardmill.beam_jobs.report.reasons import explain
from shardmill.beam_jobs.schemas import FILTER_REASONS, QUARANTINE_REASONS

PAGE = Path(__file__).with_name("recover-from-failures.md")
_BEGIN, _END = "<!-- reasons: written by docs/reasons_reference.py -->\n", "<!-- end of reasons -->\n"


def render(page: str) -> str:
    """Return the page with the reasons of the code."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    lists = (
        f"\n**Quarantined**, with what to do:\n\n{_list(QUARANTINE_REASONS, remedies=True)}\n"
        f"**Filtered**, which counts against no budget:\n\n{_list(FILTER_REASONS, remedies=False)}\n"
    )
    return f"{before}{_BEGIN}{lists}{_END}{after}"


def _list(reasons: Iterable[str], *, remedies: bool) -> str:
    """A line a reason, with its meaning and, if asked for, its remedy."""
    lines = []
    for reason in sorted(reasons):
        meaning, remedy = explain(reason)
        lines.append(f"- `{reason}`: {meaning}." + (f" {remedy}." if remedies else ""))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
