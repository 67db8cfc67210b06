"""The page of a run that published nothing: the inputs that could not be used, with reasons and remedies."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from shardmill.beam_jobs.report.figures.inputs import reason_rows
from shardmill.beam_jobs.report.page import render_refused
from shardmill.beam_jobs.report.pictures.gallery import exhibit
from shardmill.beam_jobs.sources.reading import Reader
from shardmill.infra.format.contract import FILTERED, QUARANTINED, Accounting
from shardmill.infra.storage.filesystem import Storage

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
    page = render_refused(dataset, accounting, quarantined, filtered, exhibit(source, quarantined))
    spool.write_atomic(REFUSED_PAGE, page.encode("utf-8"))
    return f"{spool.uri}/{REFUSED_PAGE}"
