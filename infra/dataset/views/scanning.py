"""The indexes of a version as one lazy Arrow table: every column, with split and class name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from shardmill.infra.dataset.views.values import LABEL_NAME, SPLIT, Columns
from shardmill.infra.errors import NotFoundError
from shardmill.infra.format.contract import INDEX_SCHEMA, Shard
from shardmill.infra.near_names import near_miss

if TYPE_CHECKING:
    from shardmill.infra.dataset.version import DatasetVersion


def index_schema(version: DatasetVersion) -> pa.Schema:
    """The columns of all indexes of a version. The shards of one plan have the same columns."""
    of_plan: dict[str, Shard] = {}
    for shard in version.manifest.shards:
        of_plan.setdefault(shard.index_path.rpartition("/")[0], shard)
    schemas = [_schema(version, shard.index_path) for shard in of_plan.values()]
    if not schemas:
        return INDEX_SCHEMA
    return pa.unify_schemas(schemas, promote_options="permissive")


def _schema(version: DatasetVersion, path: str) -> pa.Schema:
    with version.storage.open_input(path) as stream:
        return pq.read_schema(stream).remove_metadata()


def scan(version: DatasetVersion, columns: Sequence[str] | None = None) -> pads.Scanner:
    """Return a scan of the indexes, which reads nothing yet: a row for each record, in stored order.

    Args:
        version: the version; of a view only its records.
        columns: the columns to read; None: ``split``, ``label_name`` and all columns of the index.

    Raises:
        NotFoundError: there is no such column.
    """
    schema = index_schema(version)
    known = Columns(schema, version.manifest.classes)
    names = known.names() if columns is None else list(columns)
    for name in names:
        if name not in known.names():
            raise NotFoundError(
                f"the indexes of {version.ref} have no column {name!r}", near_miss(name, known.names())
            )
    options: dict[str, Any] = {"columns": {name: _column(known, name) for name in names}}
    if version.view is not None:
        options["filter"] = version.view.expression(schema, version.manifest.classes)
    return _files(version, schema).scanner(**options)


def _column(known: Columns, name: str) -> Any:
    if name == LABEL_NAME:
        return (
            known.label_name(name).data if known.have_one_class else pc.scalar(pa.scalar(None, pa.string()))
        )
    return pc.field(name)


def _files(version: DatasetVersion, schema: pa.Schema) -> pads.FileSystemDataset:
    form, fragments = pads.ParquetFileFormat(), []
    filesystem, folder = version.storage.arrow_folder()
    for split in version.manifest.splits:
        in_split = pc.field(SPLIT) == split
        fragments += [
            form.make_fragment(f"{folder}/{shard.index_path}", filesystem, partition_expression=in_split)
            for shard in version.shards(split)
        ]
    fields = pa.schema([pa.field(SPLIT, pa.string()), *schema])
    return pads.FileSystemDataset(fragments, fields, form, filesystem)
