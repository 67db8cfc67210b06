"""Many records at once, read and checked by compiled code: 2 µs of Python a record in place of 28.

``record_batch.c`` is built when the project is installed, if there is a C compiler. It only ever says that a
record is sound: one that is not is read again by ``infra.records`` and ``infra.examples``, which say what is
wrong, and which do all of it where there is no compiled code.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from infra.compiled import load_compiled
from infra.kept_buffer import KeptBuffer

_kept = KeptBuffer()


@dataclass(frozen=True, slots=True)
class Promised:
    """What an index says of N records.

    Attributes:
        id: bytes [N], 16 hexadecimal digits each.
        label, height, width: int32 [N].
    """

    id: npt.NDArray[np.bytes_]
    label: npt.NDArray[np.int32]
    height: npt.NDArray[np.int32]
    width: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class CheckedImage:
    """The encoded image of a sound record, and its channels. The bytes stay until the thread reads on."""

    image: memoryview
    channels: int


def is_compiled() -> bool:
    """Whether the compiled code is there."""
    return _library() is not None


def read_records(
    files: Sequence[int], offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], promised: Promised
) -> list[CheckedImage | None]:
    """Read and check records of uncompressed shards. Needs compiled code.

    Args:
        files: N open file descriptors.
        offsets, lengths: int64 [N], of the framed records (bytes).
        promised: by the index.

    Returns:
        N images; None for a record that is not as promised, or cannot be read.
    """
    descriptors = np.array(files, np.int32)
    buffer = _kept.at_least(int(lengths.sum()))
    found = np.empty((len(files), 3), np.int64)
    _library().shardmill_read_records(
        len(files),
        *(_pointer(column) for column in (descriptors, offsets, lengths)),
        *_pointers(promised),
        _pointer(buffer),
        _pointer(found),
    )
    memory = memoryview(cast(Any, buffer))
    return [
        None if offset < 0 else CheckedImage(memory[offset : offset + length], channels)
        for offset, length, channels in found.tolist()
    ]


def check_records(framed: Sequence[bytes], promised: Promised) -> list[CheckedImage | None]:
    """Check N framed records that are in memory already. Needs compiled code.

    Returns:
        N images; None for a record that is not as promised.
    """
    places = (ctypes.c_char_p * len(framed))(*framed)
    lengths = np.array([len(each) for each in framed], np.int64)
    found = np.empty((len(framed), 3), np.int64)
    _library().shardmill_check_records(
        len(framed), places, _pointer(lengths), *_pointers(promised), _pointer(found)
    )
    return [
        None if offset < 0 else CheckedImage(memoryview(each)[offset : offset + length], channels)
        for each, (offset, length, channels) in zip(framed, found.tolist(), strict=True)
    ]


def _pointers(promised: Promised) -> tuple[int, ...]:
    return tuple(
        _pointer(column) for column in (promised.id, promised.label, promised.height, promised.width)
    )


def _pointer(column: npt.NDArray[Any]) -> int:
    assert column.flags.c_contiguous, "compiled code reads values side by side"
    return column.ctypes.data


@functools.cache
def _library() -> Any:
    """The compiled code, or None where there is none."""
    library = load_compiled(Path(__file__).with_name("_record_batch"))
    if library is None:
        return None
    functions = (library.shardmill_read_records, library.shardmill_check_records)
    for function, num_pointers in zip(functions, (9, 7), strict=True):
        function.argtypes = (ctypes.c_int64, *[ctypes.c_void_p] * num_pointers)
        function.restype = ctypes.c_int64
    return library
