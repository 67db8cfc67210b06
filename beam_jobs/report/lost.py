"""Show the unusable inputs: in events of the job, with small pictures, and in the report of a refused run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
from markupsafe import Markup

from shardmill.beam_jobs.reasons import REASONS
from shardmill.beam_jobs.report.figures.inputs import ReasonRow, reason_rows
from shardmill.beam_jobs.report.gallery import exhibit
from shardmill.beam_jobs.report.sections import lost_inputs, template
from shardmill.beam_jobs.sources.kind_modules import Reader
from shardmill.infra.format.contract import FILTERED, QUARANTINED, Accounting
from shardmill.infra.html.page import style_hash, style_sheet
from shardmill.infra.progress import emit, events_go_to_parent
from shardmill.infra.storage.filesystem import Storage

_NAMED, _PICTURES = 40, 12  # inputs


def tell_lost(inputs: Iterable[pa.RecordBatch], source: Reader) -> None:
    """Emit the event ``lost`` with the reasons and the first quarantined inputs.

    Only a parent process gets pictures; there is nobody else to look at them.

    Args:
        inputs: INPUTS_SCHEMA, all rows in order.
        source: reads the images.
    """
    rows = reason_rows(inputs, QUARANTINED)
    pictures = _pictures(source, rows) if events_go_to_parent() else {}
    turns = [
        (turn, row.reason, lost) for row in _first(rows, _NAMED) for turn, lost in enumerate(row.examples)
    ]
    turns.sort(key=lambda one: one[0])
    named = [
        {
            "uri": lost.uri,
            "reason": reason,
            "message": lost.message,
            "size_bytes": lost.size_bytes,
            "picture": pictures.get(lost.uri),
        }
        for _, reason, lost in turns  # one of each reason, then a second of each
    ]
    counts = {row.reason: row.count for row in rows}
    meanings = {reason: REASONS[reason] for reason in counts if reason in REASONS}
    emit({"event": "lost", "reasons": counts, "meanings": meanings, "inputs": named})


def _first(rows: Sequence[ReasonRow], wanted: int) -> list[ReasonRow]:
    """Return the reasons with a part of their examples: about ``wanted`` in all, at least one each."""
    each = max(1, wanted // max(1, len(rows)))
    return [replace(row, examples=row.examples[:each]) for row in rows[:wanted]]


def _pictures(source: Reader, rows: Sequence[ReasonRow]) -> dict[str, str]:
    shown = exhibit(source, _first(rows, _PICTURES))
    return {
        one.found.uri: str(one.picture)
        for exhibits in shown.values()
        for one in exhibits
        if one.picture is not None
    }


REFUSED_PAGE = "refused.html"


def write_refused(
    spool: Storage,
    dataset: str,
    accounting: Accounting,
    inputs: Callable[[], Iterable[pa.RecordBatch]],
    source: Reader,
) -> str:
    """Write the page to the spool of a run.

    Args:
        spool: folder of unfinished work of the run.
        dataset: name of the dataset.
        accounting: number of inputs by outcome.
        inputs: gives INPUTS_SCHEMA, all rows in order.
        source: reads the images, for pictures.

    Returns:
        The location of the page.
    """
    quarantined, filtered = reason_rows(inputs(), QUARANTINED), reason_rows(inputs(), FILTERED)
    outcomes, style = accounting.outcomes, style_sheet()
    values = lost_inputs(quarantined, filtered, exhibit(source, quarantined))
    page = template("refused").render(
        dataset=dataset,
        style=style,
        style_hash=style_hash(style),
        num_inputs=accounting.num_inputs,
        outcomes=outcomes,
        lost=Markup(template("quarantine").render(outcomes=outcomes, **values)) if values else "",
    )
    spool.write_atomic(REFUSED_PAGE, page.encode("utf-8"))
    return f"{spool.uri}/{REFUSED_PAGE}"
