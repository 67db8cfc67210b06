"""The HTML report of a version: what went in, what came out, as pictures and plots.

One self-contained page without scripts. Every text on it is escaped by the template engine, and its
content security policy forbids scripts and requests of any kind, so that neither a file name nor a label
can do anything but be read.
"""

from __future__ import annotations

import pyarrow as pa

from beam_jobs.report.page import render_page
from beam_jobs.report.pictures import choose_and_read
from beam_jobs.report.rows import count_by_class, duplicate_groups, reason_rows
from beam_jobs.report.survey import survey_indexes
from infra.contract import FILTERED, QUARANTINED, Manifest, data_dir
from infra.storage import Storage

__all__ = ["write_report"]


def write_report(storage: Storage, manifest: Manifest, inputs: pa.Table) -> str:
    """Write the report of a version that is about to be published.

    Args:
        storage: the dataset's folder; the manifest's shards and indexes are in it.
        manifest: of the version.
        inputs: ``INPUTS_SCHEMA``, a row for every input.

    Returns:
        The path of the page relative to the dataset: ``data/<plan digest>/report.html``.

    Raises:
        CorruptDataError: a record that the page shows cannot be read from its shard.
    """
    duplicates = duplicate_groups(inputs)
    survey = survey_indexes(storage, manifest, wanted_ids=duplicates.record_ids(manifest.label_conflicts))
    page = render_page(
        manifest,
        classes=count_by_class(inputs, manifest),
        quarantined=reason_rows(inputs, QUARANTINED),
        filtered=reason_rows(inputs, FILTERED),
        duplicates=duplicates,
        survey=survey,
        pictures=choose_and_read(storage, manifest, survey),
    )
    path = f"{data_dir(manifest.plan_digest)}/report.html"
    storage.write_atomic(path, page.encode("utf-8"))
    return path
