"""From any record to its source, and from any source to its record or its reason."""

from __future__ import annotations

import difflib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from infra.catalog import DatasetVersion
from infra.errors import NotFoundError, UsageError
from infra.names import is_text, uri_of


def locate(
    version: DatasetVersion, *, source: str | None = None, record: str | None = None
) -> list[dict[str, Any]]:
    """What became of a source, or which sources a record came from.

    Args:
        version: where to look.
        source: URI relative to the source folder, or the file's absolute path; a name as Python gives it
            (infra.names) serves too.
        record: record id.

    Returns:
        One entry an input row, with the columns of INPUTS_SCHEMA; where there is a record, its ``shard``,
        ``shard_row``, ``offset_bytes``, ``length_bytes`` and ``label`` too.

    Raises:
        UsageError: not exactly one of ``source`` and ``record`` is given.
        NotFoundError: this version never saw it.
    """
    if (source is None) == (record is None):
        raise UsageError("give either a source or a record", "--source URI or --record ID")
    inputs = version.inputs()
    if record is not None:
        rows = inputs.filter(pc.equal(inputs["record_id"], uri_of(record)))
        if not rows.num_rows:
            raise NotFoundError(f"no record {record!r} in {version.ref}")
    else:
        assert source is not None
        rows = _rows_of_source(version, inputs, source)
    return [_with_place(version, row) for row in rows.to_pylist()]


def _rows_of_source(version: DatasetVersion, inputs: pa.Table, source: str) -> pa.Table:
    prefix = version.manifest.source.rstrip("/") + "/"
    # What is typed is most often the URI as it was shown; else it is a name of a file.
    shown, named = source.removeprefix(prefix), uri_of(source).removeprefix(prefix)
    for relative in (shown, named) if is_text(shown) else (named,):
        rows = inputs.filter(pc.equal(inputs["uri"], relative))
        if rows.num_rows:
            return rows
    known = inputs["uri"].to_pylist()
    near = difflib.get_close_matches(named, known, n=3) if len(known) <= 100_000 else []
    raise NotFoundError(
        f"{version.ref} never saw the source {named!r}",
        f"near names: {', '.join(near)}" if near else f"URIs are relative to {version.manifest.source}",
    )


def _with_place(version: DatasetVersion, row: dict[str, Any]) -> dict[str, Any]:
    """The row, with where its record lies."""
    if row["record_id"] is None:
        return row
    for shard in version.shards(row["split"]) if row["split"] else version.manifest.shards:
        index = version.index(shard)
        place = pc.index(index["id"], row["record_id"]).as_py()
        if place >= 0:
            columns = ("offset_bytes", "length_bytes", "label", "stored_bytes", "height", "width")
            found = {name: index[name][place].as_py() for name in columns}
            found["label_index"] = found.pop("label")
            return {**row, "shard": shard.path, "shard_row": place, **found}
    raise NotFoundError(
        f"record {row['record_id']} of {version.ref} is in no shard", f"run `shardmill verify {version.ref}`"
    )
