"""Parquet: id, image bytes, mask bytes if there are masks, label, class name, and the rest of the index.

The metadata of each file's schema has, under the key ``shardmill``, dataset, version, class names and the
encoding of the images. Images are not compressed again; the other columns are, with Zstandard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.infra.dataset.exports.formats import Format
from shardmill.infra.dataset.exports.parts import Batch, Part, Plan, class_names, label_names
from shardmill.infra.dataset.exports.target import PartFiles
from shardmill.infra.strict_json import dump_json

_FIRST = ("id", "label")

Images = Callable[[Plan, Batch], dict[str, pa.Array]]


def table_schema(plan: Plan, image: pa.DataType, metadata: dict[str, str]) -> pa.Schema:
    """The columns of a file: id, image, mask if there are masks, label, class name, then the index."""
    fields = [
        plan.columns.field("id"),
        *(pa.field(name, image) for name in picture_columns(plan)),
        pa.field("label", pa.int64()),
        pa.field("label_name", pa.string()),
        *(field for field in plan.columns if field.name not in _FIRST),
    ]
    return pa.schema(fields, metadata=metadata)


def picture_columns(plan: Plan) -> tuple[str, ...]:
    """Return the names of the columns of images and of stored masks.

    Without masks, a column ``mask`` is a further feature of the dataset.
    """
    return ("image",) if plan.version.manifest.mask is None else ("image", "mask")


def write_tables(
    stream: object, schema: pa.Schema, plan: Plan, batches: Iterator[Batch], images: Images
) -> int:
    """Write a Parquet file, a row group for each batch; return the number of rows.

    Args:
        stream: takes the bytes.
        schema: as ``table_schema`` gives it.
        plan: plan of the export.
        batches: the records.
        images: makes the column of the images of a batch, and that of their masks.
    """
    pictures = picture_columns(plan)
    kinds = {name: schema.field(name).type for name in pictures}
    nested = {name for name, kind in kinds.items() if pa.types.is_struct(kind)}
    leaves = [f"{name}.{part.name}" for name in pictures if name in nested for part in kinds[name]]
    leaves += [name for name in pictures if name not in nested]
    plain = [name for name in schema.names if name not in pictures]
    codecs = dict.fromkeys(plain, "zstd") | dict.fromkeys(leaves, "none")
    number = 0
    with pq.ParquetWriter(
        stream, schema, compression=_by_leaf(schema, codecs), use_dictionary=False, write_statistics=False
    ) as writer:
        for batch in batches:
            made = images(plan, batch) | {"label_name": label_names(plan, batch)}
            columns = [
                made[field.name] if field.name in made else batch.index[field.name].cast(field.type)
                for field in schema
            ]
            writer.write_table(pa.table(columns, schema=schema))
            number += len(batch.records)
    return number


def _by_leaf(schema: pa.Schema, codecs: dict[str, str]) -> dict[str, str]:
    """Name the columns as Parquet does: the values of a list are a column of their own."""
    found = {}
    for name, codec in codecs.items():
        is_list = name in schema.names and pa.types.is_list(schema.field(name).type)
        found[f"{name}.list.element" if is_list else name] = codec
    return found


class _Parquet(Format):
    def write(self, plan: Plan, part: Part, batches: Iterator[Batch], files: PartFiles) -> int:
        about = {
            "dataset": plan.version.ref,
            "classes": class_names(plan),
            "image_encoding": plan.version.manifest.image_encoding,
            "split": part.split,
        }
        schema = table_schema(plan, pa.binary(), {"shardmill": dump_json(about, ensure_ascii=False)})
        with files.create(f"{part.stem}.parquet") as stream:
            return write_tables(stream, schema, plan, batches, _stored_images)


def _stored_images(plan: Plan, batch: Batch) -> dict[str, pa.Array]:
    return {
        name: pa.array([getattr(record, name) for record in batch.records], pa.binary())
        for name in picture_columns(plan)
    }


FORMAT = _Parquet()
