"""Convert a column to one type, value by value. Values without such a form become faults of their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardmill.beam_jobs.tables.columns import is_listed, lengths_of, lists_of, mask_of, not_utf8, one_chunk
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.features import MISSING, Dtype
from shardmill.infra.readable import shortened

Kind = Literal["int64", "float", "text", "bytes"]  # the values of the setting ``dtype``

ARROW_KINDS: Final[Mapping[Kind, pa.DataType]] = {
    "int64": pa.int64(), "float": pa.float32(), "text": pa.string(), "bytes": pa.binary(),
}  # fmt: skip
DTYPES: Final[Mapping[Kind, Dtype]] = {
    "int64": "int64", "float": "float32", "text": "bytes", "bytes": "bytes",
}  # fmt: skip

_WHOLE = r"^[+-]?[0-9]{1,19}$"
_LEAST, _MOST = "9223372036854775808", "9223372036854775807"  # digits of the least and the largest int64
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(?i:nan|inf|infinity)$"
_TRUTHS = {"^(?i:true)$": "1", "^(?i:false)$": "0"}
_WORDS = {"int64": "a whole number", "float": "a number", "text": "text", "bytes": "bytes"}
_SHOWN = 40

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Converted:
    """A column of one type.

    Attributes:
        values: of a type in ARROW_KINDS, or a list of it; null where there is no value or a fault.
        faults: row -> why its value cannot be used.
    """

    values: pa.Array
    faults: dict[int, str]


def natural_kind(kind: pa.DataType) -> Kind | None:
    """Return the kind of values that a type of Arrow has; None if it can be no feature."""
    if is_listed(kind) or pa.types.is_dictionary(kind):
        return None if is_listed(kind) and is_listed(kind.value_type) else natural_kind(kind.value_type)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "int64"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "float"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "bytes"
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)
    return "text" if is_text or pa.types.is_temporal(kind) else None


def convert(column: pa.ChunkedArray, kind: Kind, length: int | None = None) -> Converted:
    """Convert a column of values or of lists of values.

    Args:
        column: array of a type that ``natural_kind`` knows.
        kind: kind of the result.
        length: number of values that each list has to have; None: any.

    Raises:
        ConfigError: the whole column has no such form.
    """
    array = one_chunk(column)
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if not is_listed(array.type):
        values, bad = _scalars(array, kind)
        return Converted(values, _faults(array, np.flatnonzero(bad), np.flatnonzero(bad), kind))
    lists = array.cast(pa.list_(array.type.value_type))
    lengths = lengths_of(lists)
    items = lists.flatten()
    values, bad = _scalars(items, kind)
    of_item = np.repeat(np.arange(len(lists)), lengths)
    faults = _faults(items, np.flatnonzero(bad), of_item[bad], kind)
    if length is not None:
        wrong = np.flatnonzero((lengths != length) & mask_of(pc.is_valid(lists)))
        faults |= {row: f"has {lengths[row]} values, not {length}" for row in wrong.tolist()}
    good = np.ones(len(lists), np.bool_)
    good[list(faults)] = False
    return Converted(_rebuilt(lists, values, lengths, good, DTYPES[kind]), faults)


def _rebuilt(
    lists: pa.ListArray, values: pa.Array, lengths: npt.NDArray[np.int64], good: Mask, dtype: Dtype
) -> pa.Array:
    """Return lists with other values; null where they were null or are no good."""
    missing: int | float | bytes | str = MISSING[dtype]
    if pa.types.is_string(values.type):
        missing = ""
    filled = pc.fill_null(values, pa.scalar(missing, values.type))
    return lists_of(filled, lengths, pa.array(~good | ~mask_of(pc.is_valid(lists))))


def _scalars(values: pa.Array, kind: Kind) -> tuple[pa.Array, Mask]:
    """Convert values; return also which have no such form."""
    wanted = ARROW_KINDS[kind]
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    none_bad = np.zeros(len(values), np.bool_)
    try:
        if kind in ("text", "bytes"):
            if natural_kind(values.type) != "bytes":
                return values.cast(pa.string()).cast(wanted), none_bad
            bad = none_bad if kind == "bytes" else not_utf8(values)
            return pc.if_else(pa.array(bad), pa.scalar(None, values.type), values).cast(wanted), bad
        if natural_kind(values.type) == "text":
            texts = pc.utf8_trim_whitespace(values.cast(pa.string()))
            texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
            for pattern, number in _TRUTHS.items():  # Python and pandas write truth values so
                texts = pc.replace_substring_regex(texts, pattern, number)
            fits = _are_int64(texts) if kind == "int64" else pc.match_substring_regex(texts, _NUMBER)
            bad = ~mask_of(pc.fill_null(fits, True))
            good = pc.utf8_ltrim(pc.if_else(pa.array(bad), pa.scalar(None, pa.string()), texts), "+")
            return (good.cast(pa.int64()) if kind == "int64" else good.cast(pa.float64()).cast(wanted)), bad
        if kind == "int64" and natural_kind(values.type) == "float":
            numbers = values.cast(pa.float64())
            numbers = pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)
            whole = pc.and_(pc.equal(pc.floor(numbers), numbers), pc.less(pc.abs(numbers), 2.0**63))
            bad = ~mask_of(pc.fill_null(whole, True))
            return pc.if_else(pa.array(bad), pa.scalar(None, pa.float64()), numbers).cast(wanted), bad
        if kind == "float":
            return values.cast(pa.float64(), safe=False).cast(wanted), none_bad
        return values.cast(wanted), none_bad
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigError(
            f"a value of type {values.type} is not {_WORDS[kind]}: {str(error).splitlines()[0]}",
            "name another column, or say another dtype",
        ) from error


def _are_int64(texts: pa.Array) -> pa.Array:
    """Return which texts are whole numbers of 64 bits: bool [N], null where a text is null."""
    digits = pc.utf8_ltrim(texts, "+-")
    most = pc.if_else(pc.starts_with(texts, "-"), _LEAST, _MOST)
    fits = pc.or_(pc.less(pc.utf8_length(digits), len(_MOST)), pc.less_equal(digits, most))
    return pc.and_(pc.match_substring_regex(texts, _WHOLE), fits)


def _faults(
    values: pa.Array, bad: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], kind: Kind
) -> dict[int, str]:
    """Return row -> the first of its values that has no such form, in words."""
    faults: dict[int, str] = {}
    for at, row in zip(bad.tolist(), rows.tolist(), strict=True):
        if row not in faults:
            shown = shortened(str(values[at].as_py()), _SHOWN)
            faults[row] = f"is {shown!r}, not {_WORDS[kind]}"
    return faults
