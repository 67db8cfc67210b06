"""Parquet, HDF5, LMDB and ArrayRecord: formats that find a record by number or key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from tests.benchmarks.formats.stores.storing import Example, Format, main

_ROWS_A_GROUP = 64  # few, for random access: a record costs the reading of its group
_MAP_BYTES = 1 << 40


def write_parquet(examples: Iterator[Example], out: Path) -> None:
    schema = pa.schema([("image", pa.binary()), ("label", pa.int32())])
    rows = list(examples)
    with pq.ParquetWriter(
        out / "photographs.parquet", schema, compression="none", use_dictionary=False
    ) as to:
        for start in range(0, len(rows), _ROWS_A_GROUP):
            images, labels = zip(*rows[start : start + _ROWS_A_GROUP], strict=True)
            to.write_table(
                pa.table([pa.array(images, pa.binary()), pa.array(labels, pa.int32())], schema=schema)
            )


class Parquet:
    def __init__(self, out: Path) -> None:
        self._file = pq.ParquetFile(out / "photographs.parquet", memory_map=True)
        self.num_records = self._file.metadata.num_rows

    def scan(self) -> Iterator[bytes]:
        for rows in self._file.iter_batches(_ROWS_A_GROUP, columns=["image"], use_threads=False):
            yield from rows.column(0).to_pylist()

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        wanted = defaultdict(list)
        for at, number in enumerate(numbers):
            wanted[number // _ROWS_A_GROUP].append((at, number % _ROWS_A_GROUP))
        found: dict[int, bytes] = {}
        for group, places in wanted.items():
            images = self._file.read_row_group(group, columns=["image"], use_threads=False).column(0)
            found |= {at: images[row].as_py() for at, row in places}
        return [found[at] for at in range(len(numbers))]


def write_hdf5(examples: Iterator[Example], out: Path) -> None:
    """Bytes of all images one after the other, and where each begins: variable-length rows are slower."""
    rows = list(examples)
    ends = np.cumsum([0, *(len(image) for image, _ in rows)])
    with h5py.File(out / "photographs.h5", "w") as to:
        images = to.create_dataset("images", (int(ends[-1]),), np.uint8)
        for (image, _), begin in zip(rows, ends.tolist(), strict=False):
            images[begin : begin + len(image)] = np.frombuffer(image, np.uint8)
        to["ends"] = ends
        to["labels"] = np.array([label for _, label in rows], np.int32)


class Hdf5:
    def __init__(self, out: Path) -> None:
        file = h5py.File(out / "photographs.h5")
        self._images, self._ends = file["images"], file["ends"][:]
        self.num_records = self._ends.size - 1

    def scan(self) -> Iterator[bytes]:
        return (self._record(number) for number in range(self.num_records))

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        return [self._record(number) for number in numbers]

    def _record(self, number: int) -> bytes:
        return bytes(self._images[self._ends[number] : self._ends[number + 1]].data)


def write_lmdb(examples: Iterator[Example], out: Path) -> None:
    database = lmdb.open(str(out), map_size=_MAP_BYTES, writemap=False)
    with database.begin(write=True) as to:
        for number, (image, label) in enumerate(examples):
            to.put(number.to_bytes(8, "big"), label.to_bytes(4, "big") + image, append=True)
    database.close()


class Lmdb:
    def __init__(self, out: Path) -> None:
        database = lmdb.open(str(out), readonly=True, lock=False, readahead=False, map_size=_MAP_BYTES)
        self._rows: Any = database.begin(buffers=True)
        self.num_records = database.stat()["entries"]

    def scan(self) -> Iterator[bytes]:
        return (bytes(value[4:]) for _, value in self._rows.cursor())

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        return [bytes(self._rows.get(number.to_bytes(8, "big"))[4:]) for number in numbers]


def write_array_record(examples: Iterator[Example], out: Path) -> None:
    to = ArrayRecordWriter(str(out / "photographs.arrayrecord"), "group_size:1,uncompressed")
    for image, label in examples:
        to.write(label.to_bytes(4, "big") + image)
    to.close()


class ArrayRecord:
    def __init__(self, out: Path) -> None:
        path = str(out / "photographs.arrayrecord")
        # Two readers, as its guide advises: read-ahead makes random access slow.
        self._scanned = ArrayRecordReader(path)
        self._picked = ArrayRecordReader(path, "readahead_buffer_size:0")
        self.num_records = self._scanned.num_records()

    def scan(self) -> Iterator[bytes]:
        self._scanned.seek(0)
        return (self._scanned.read()[4:] for _ in range(self.num_records))

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        return [record[4:] for record in self._picked.read(list(numbers))]


if __name__ == "__main__":
    main(
        {
            "parquet": Format(write_parquet, lambda work, out: Parquet(out)),
            "hdf5": Format(write_hdf5, lambda work, out: Hdf5(out)),
            "lmdb": Format(write_lmdb, lambda work, out: Lmdb(out)),
            "arrayrecord": Format(write_array_record, lambda work, out: ArrayRecord(out)),
        }
    )
