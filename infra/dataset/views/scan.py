"""Scan the indexes of a version, or of a view of it, without reading whole tables into memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from shardmill.infra.dataset.views.values import LABEL_NAME, SPLIT, Columns
from shardmill.infra.errors import NotFoundError
from shardmill.infra.near_names import near_miss

if TYPE_CHECKING:
    from shardmill.infra.dataset.version import DatasetVersion


def scanner(version: DatasetVersion, schema: pa.Schema, columns: Sequence[str] | None) -> pads.Scanner:
    """Return a scan of the indexes of a version or view; see ``DatasetVersion.scan``.

    Args:
        version: the version or view.
        schema: the columns of all its indexes.
        columns: the columns to read; None: all.
    """
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
