"""The rows of all inputs as files, in parts: a version writes the parts that changed and inherits the rest.

The rows, in the order of their URIs, are cut by the hash of each URI (shardmill.beam_jobs.tables.cutting). A
part is named by the digest of its rows, so an equal part of the previous version has the same name.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.beam_jobs.plan import OutcomeRows
from shardmill.beam_jobs.tables.cutting import part_lengths
from shardmill.beam_jobs.tables.digests import table_digest
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import sha256_hex
from shardmill.infra.format.contract import TableFile
from shardmill.infra.format.layout import inputs_file
from shardmill.infra.storage.filesystem import Storage

ROWS_OF_A_PART = 8_192  # on average


def write_inputs(
    storage: Storage, folder: str, inputs: pa.Table | OutcomeRows, previous: DatasetVersion | None = None
) -> list[TableFile]:
    """Write the parts that the previous version does not have.

    Args:
        storage: the dataset's folder.
        folder: receives new parts; relative to the dataset.
        inputs: INPUTS_SCHEMA, sorted by URI; or the columns that such rows are made of.
        previous: the version whose equal parts are inherited if they are still there.

    Returns:
        All parts, in order.
    """
    known = {part.path.rpartition("/")[2]: part for part in previous.manifest.inputs} if previous else {}
    present = previous.present_files() if previous else {}
    parts = []
    for rows in cut_inputs(inputs):
        name = inputs_file(table_digest(rows)[:24])
        part = known.get(name)
        if part is None or present.get(part.path) != part.num_bytes:
            data = table_bytes(rows)
            digest = sha256_hex(data)
            if part is None or part.sha256 != digest:
                part = TableFile(
                    path=f"{folder}/{name}", num_rows=rows.num_rows, num_bytes=len(data), sha256=digest
                )
            storage.write_atomic(part.path, data)  # a part that was lost comes back where it was
        parts.append(part)
    return parts


def cut_inputs(inputs: pa.Table | OutcomeRows, mean: int = ROWS_OF_A_PART) -> Iterator[pa.Table]:
    """Yield the rows (INPUTS_SCHEMA) in parts; one empty part if there is no row."""
    if isinstance(inputs, pa.Table):
        uris, rows = inputs["uri"].iterchunks(), inputs.slice
    else:
        uris, rows = iter(inputs.uris()), inputs.table
    start = 0
    for length in part_lengths(uris, mean):
        yield rows(start, length)
        start += length
    if not start:
        yield rows(0, 0)


def table_bytes(table: pa.Table) -> bytes:
    """Return a table as a Parquet file. The same rows give the same bytes."""
    sink = io.BytesIO()
    pq.write_table(table.combine_chunks(), sink, compression="zstd")
    return sink.getvalue()
