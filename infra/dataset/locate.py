"""Find the sources of a record, and the record of a source or the reason why it has none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shardmill.infra.arguments import checked
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import NotFoundError, UsageError
from shardmill.infra.near_names import near_names
from shardmill.infra.storage.locations import is_text, uri_of
from shardmill.infra.storage.objects.hub import without_revision


@dataclass(frozen=True)
class Located:
    """Place of a source or a record.

    Attributes:
        version: the version of ``matches``.
        matches: see ``locate``.
        versions: numbers of all versions that have it, in ascending order.
        newest: number of the newest version of the dataset.
    """

    version: DatasetVersion
    matches: list[dict[str, Any]]
    versions: list[int]
    newest: int


def locate_anywhere(
    catalog: Catalog, ref: str, *, source: str | None = None, record: str | None = None
) -> Located:
    """Find a source or a record in the newest version that has it.

    Args:
        catalog: the root of the dataset.
        ref: a dataset; with a number, that version alone.
        source: as for ``locate``.
        record: as for ``locate``.

    Raises:
        UsageError: not exactly one of ``source`` and ``record`` is given.
        NotFoundError: no version has it, or the given version has not; the error names those that have.
    """
    opened = catalog.open(ref)
    numbers = catalog.versions(opened.name)
    missing: NotFoundError | None = None
    try:
        matches = locate(opened, source=source, record=record)
    except NotFoundError as error:
        missing = error
    others = [catalog.open(f"{opened.name}@{number}") for number in numbers if number != opened.version]
    known: dict[tuple[str, str], bool] = {}
    knowing = [version for version in others if _knows(version, source, record, known)]
    found = sorted([version.version for version in knowing] + ([] if missing else [opened.version]))
    if missing is None:
        return Located(opened, matches, found, numbers[-1])
    if not knowing:
        raise missing
    if ref.partition("@")[2] not in ("", "latest"):
        raise NotFoundError(
            missing.message, f"known in: {', '.join(f'{opened.name}@{number}' for number in found)}"
        ) from missing
    last = knowing[-1]
    return Located(last, locate(last, source=source, record=record), found, numbers[-1])


def _knows(
    version: DatasetVersion, source: str | None, record: str | None, known: dict[tuple[str, str], bool]
) -> bool:
    """Tell whether a version has a source or a record. ``known`` caches the answer for each part."""
    column = "uri" if record is None else "record_id"
    wanted = [uri_of(record)] if record is not None else _relative(version, source or "")
    for part in version.manifest.inputs:
        key = (part.path, "\0".join(wanted))
        if key not in known:
            values = version.table(part.path, columns=[column])[column]
            known[key] = bool(pc.any(pc.is_in(values, pa.array(wanted, pa.string()))).as_py())
        if known[key]:
            return True
    return False


@checked
def locate(
    version: DatasetVersion, *, source: str | None = None, record: str | None = None
) -> list[dict[str, Any]]:
    """Find the outcome of a source, or the sources of a record.

    Args:
        version: where to look.
        source: URI relative to the source folder, or the file's absolute path, also as a name that Python
            gives (shardmill.infra.storage.locations).
        record: id of the record.

    Returns:
        One entry for each input row, with the columns of INPUTS_SCHEMA and the ``location`` of the file. If
        it is a record: also its ``shard``, ``shard_row``, ``offset_bytes``, ``length_bytes`` and ``label``.

    Raises:
        UsageError: not exactly one of ``source`` and ``record`` is given.
        NotFoundError: the version does not have it.
    """
    if (source is None) == (record is None):
        raise UsageError("give either a source or a record", "--source URI or --record ID")
    inputs = version.inputs()
    if record is not None:
        rows = inputs.filter(pc.equal(inputs["record_id"], uri_of(record)))
        if not rows.num_rows:
            raise NotFoundError(
                f"no record {record!r} in {version.ref}",
                "give the 16 hexadecimal digits of its id, which --source URI shows",
            )
    else:
        assert source is not None
        rows = _rows_of_source(version, inputs, source)
    return [_with_place(version, row) for row in rows.to_pylist()]


def _rows_of_source(version: DatasetVersion, inputs: pa.Table, source: str) -> pa.Table:
    for relative in _relative(version, source):
        rows = inputs.filter(pc.equal(inputs["uri"], relative))
        if rows.num_rows:
            return rows
    named = _relative(version, source)[-1]
    known = inputs["uri"].to_pylist()
    near = near_names(named, known, count=3) if len(known) <= 100_000 else []
    raise NotFoundError(
        f"{version.ref} never saw the source {named!r}",
        f"near names: {', '.join(near)}" if near else f"URIs are relative to {version.manifest.source}",
    )


def _relative(version: DatasetVersion, source: str) -> list[str]:
    """The URIs that a person may mean, the most likely first."""
    prefix, source = without_revision(version.manifest.source).rstrip("/") + "/", without_revision(source)
    # People mostly type a URI as it was shown; otherwise it is a file name.
    shown, named = source.removeprefix(prefix), uri_of(source).removeprefix(prefix)
    return [shown, named] if is_text(shown) else [named]


def _with_place(version: DatasetVersion, row: dict[str, Any]) -> dict[str, Any]:
    """The row, with the places of its file and of its record."""
    row = {**row, "location": f"{version.manifest.source.rstrip('/')}/{row['uri']}"}
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
