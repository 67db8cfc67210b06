"""WebDataset: tar files whose members share the id of a record as key.

For each record ``train-00000-of-00012.tar`` has::

    0f3c5a7be1d24c68.jpg     the stored image (.png, .webp; raw pixels and arrays as .npy, [H, W, C])
    0f3c5a7be1d24c68.seg.png the stored mask; only of labels of kind mask
    0f3c5a7be1d24c68.cls     the label in decimal digits; missing if the record has none
    0f3c5a7be1d24c68.json    class name and every column of the index; bytes as base64

A tar is a plain USTAR archive without dates and owners, so the same records give the same bytes.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from typing import BinaryIO, cast

from shardmill.infra.dataset.exports.formats import Format
from shardmill.infra.dataset.exports.parts import (
    Batch,
    Part,
    Plan,
    as_npy,
    image_suffix,
    json_line,
    json_rows,
)
from shardmill.infra.dataset.exports.target import PartFiles


class _WebDataset(Format):
    holds_samples = True

    def write(self, plan: Plan, part: Part, batches: Iterator[Batch], files: PartFiles) -> int:
        suffix, number = image_suffix(plan, raw="npy"), 0
        with (
            files.create(f"{part.stem}.tar") as stream,
            tarfile.open(fileobj=cast(BinaryIO, stream), mode="w|", format=tarfile.USTAR_FORMAT) as tar,
        ):
            for batch in batches:
                for record, row in zip(batch.records, json_rows(plan, batch), strict=True):
                    image = as_npy(plan, record) if suffix == "npy" else record.image
                    _add(tar, f"{record.id}.{suffix}", image)
                    if record.mask is not None:
                        _add(tar, f"{record.id}.seg.png", record.mask)
                    if row["label"] is not None:
                        _add(tar, f"{record.id}.cls", str(row["label"]).encode("ascii"))
                    _add(tar, f"{record.id}.json", json_line(row))
                    number += 1
        return number


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


FORMAT = _WebDataset()
