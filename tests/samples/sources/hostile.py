"""Sources with content that no honest program writes: texts, numbers and headers that lie."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import Status, file_refs
from shardmill.beam_jobs.sources import list_inputs, open_reader
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault

HUGE = "9" * 400  # digits of a number that fits into no float
HALF = "\ud800"  # half a character of a pair: JSON can write it, UTF-8 cannot


def claiming_utf8(values: list[bytes]) -> pa.Array:
    """A column of texts whose bytes nobody checked, as careless writers of Parquet make them."""
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def npy(shape: str, dtype: str = "'|u1'", values: bytes = b"") -> bytes:
    """An ``.npy`` file whose header says this, behind it the values."""
    header = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}}}"
    return damaged_npy(header) + values


def damaged_npy(header: str) -> bytes:
    """An ``.npy`` file with this text as its header."""
    text = header.encode() + b" " * 16 + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def alter_zip(data: bytes, *, method: int | None = None, flags: int = 0) -> bytes:
    """A zip whose members have another compression method or further flags, in both of its directories."""
    changed = bytearray(data)
    for mark, at_flags in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        place = changed.find(mark)
        while place >= 0:
            changed[place + at_flags] |= flags
            if method is not None:
                changed[place + at_flags + 2 : place + at_flags + 4] = struct.pack("<H", method)
            place = changed.find(mark, place + 4)
    return bytes(changed)


def outcomes(folder: Path, kind: str, **source: Any) -> dict[str, str | None]:
    """List and read a source as a job does: URI -> the reason why it is not read, or None.

    Each reason must have a message.
    """
    config = PrepareConfig.model_validate({"source": {"kind": kind, **source}})
    source_folder = SourceFolder(str(folder))
    listing = list_inputs(source_folder, config)
    found: dict[str, str | None] = {}
    for row in listing.table.to_pylist():
        found[row["uri"]] = row["reason"]
        if row["status"] != Status.TO_READ:
            assert row["reason"], row
            assert len(row["message"] or "") > 5, row
    reader = open_reader(source_folder, config)
    for file in file_refs(listing.to_read()):
        try:
            reader.read(file)
        except SourceFault as fault:
            found[file.uri] = fault.reason if fault.message else "silent"
    return found
