"""Ids of records as numbers: 16 hexadecimal digits are the 64 bits of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.infra.errors import CorruptDataError

RecordIds = npt.NDArray[np.uint64]

_DIGITS = 16


def id_text(number: Any) -> str:
    """Return the id of a record: its number as 16 hexadecimal digits."""
    return f"{int(number):016x}"


def id_number(text: str) -> int:
    """Return the number of an id."""
    return int(text, 16)


def id_numbers(column: pa.ChunkedArray) -> RecordIds:
    """Return the numbers of ids: string [N] of 16 lower-case hexadecimal digits to uint64 [N].

    Raises:
        CorruptDataError: one of them is something else.
    """
    # A cast loads pyarrow.compute, which takes 0.06 s.
    texts = (one if one.type == pa.string() else one.cast(pa.string()) for one in column.chunks)
    parts = [_numbers(one) for one in texts]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _numbers(texts: pa.StringArray) -> RecordIds:
    if not len(texts):
        return np.empty(0, np.uint64)
    _, offset_buffer, characters = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    digits = np.frombuffer(characters, np.uint8)[offsets[0] : offsets[-1]]
    is_letter = (digits >= ord("a")) & (digits <= ord("f"))
    is_digit = (digits >= ord("0")) & (digits <= ord("9"))
    if texts.null_count or (np.diff(offsets) != _DIGITS).any() or not (is_letter | is_digit).all():
        raise CorruptDataError(f"an id is not {_DIGITS} hexadecimal digits")
    values = digits - np.where(is_letter, ord("a") - 10, ord("0")).astype(np.uint8)
    packed = np.ascontiguousarray(values[0::2] << 4 | values[1::2])
    return packed.view(">u8").astype(np.uint64)
