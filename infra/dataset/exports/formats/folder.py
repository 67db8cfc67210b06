"""Plain image files, one folder a split and class, as torchvision's and Keras's readers expect them.

::

    train/hat/0f3c5a7be1d24c68.jpg       the stored image (.png, .webp; raw pixels as .png, arrays as .npy)
    index/train-00000-of-00012.parquet   a row for each image: its file, class name, all of the index

Images with masks lie in ``train/images``, their masks in ``train/masks``, as the source kind masks reads
them. Other images that have no single class lie in the folder of their split. Characters of class names that
a folder cannot have are percent-encoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from shardmill.infra.dataset.exports.formats import Format
from shardmill.infra.dataset.exports.parts import Batch, Part, Plan, as_picture, image_suffix, label_names
from shardmill.infra.dataset.exports.target import PartFiles
from shardmill.infra.errors import UsageError

_LONGEST_BYTES = 255  # longest file name of usual file systems
_HARMLESS = " !#$&'()+,-.=@[]^_{}~" + "".join(map(chr, range(0xA0, 0x3000)))


class _Folder(Format):
    holds_samples = True

    def check(self, plan: Plan) -> None:
        for name in plan.version.manifest.classes:
            if len(folder_name(name).encode()) > _LONGEST_BYTES:
                raise UsageError(
                    f"the class name {name[:40]!r}… is too long for a folder", "export another format"
                )

    def write(self, plan: Plan, part: Part, batches: Iterator[Batch], files: PartFiles) -> int:
        suffix, number = image_suffix(plan, raw="png"), 0
        fields = [pa.field("file", pa.string()), pa.field("label_name", pa.string()), *plan.columns]
        schema = pa.schema(fields)
        manifest = plan.version.manifest
        plain = part.split if manifest.mask is None else f"{part.split}/images"
        of_label: dict[int | None, str] = {None: plain}  # records that have no single class
        of_label |= {n: f"{part.split}/{folder_name(name)}" for n, name in enumerate(manifest.classes)}
        with (
            files.create(f"index/{part.stem}.parquet") as stream,
            pq.ParquetWriter(stream, schema, compression="zstd") as index,
        ):
            for batch in batches:
                names = label_names(plan, batch)
                labels = batch.index["label"].to_pylist()
                folders = [of_label[label] for label in labels]
                paths = [
                    f"{folder}/{record.id}.{suffix}"
                    for folder, record in zip(folders, batch.records, strict=True)
                ]
                for path, record in zip(paths, batch.records, strict=True):
                    files.write(path, as_picture(plan, record))
                    if record.mask is not None:
                        files.write(f"{part.split}/masks/{record.id}.png", record.mask)
                columns = [pa.array(paths, pa.string()), names, *batch.index.columns]
                index.write_table(pa.table(columns, schema=schema))
                number += len(batch.records)
        return number


def folder_name(name: str) -> str:
    """The name of a class as a folder, different for different names."""
    encoded = quote(name, safe=_HARMLESS, errors="surrogateescape")
    return encoded.replace(".", "%2E", 1) if encoded.startswith(".") else encoded


FORMAT = _Folder()
