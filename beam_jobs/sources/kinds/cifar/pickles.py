"""Pickles that are not executed: texts, numbers, lists and arrays are read.

A pickle that names anything else is broken.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardmill.beam_jobs.sources.rows.row_files import RowFileBroken


@dataclass
class Array:
    """An array in a pickle of NumPy: its shape, type and bytes."""

    shape: tuple[int, ...] = ()
    kind: str = ""
    is_fortran: bool = False
    data: bytes = b""

    def __setstate__(self, state: Any) -> None:
        """Take what NumPy's ``ndarray.__setstate__`` takes."""
        _, shape, dtype, is_fortran, data = state
        is_array = isinstance(dtype, _Kind) and isinstance(data, bytes) and isinstance(shape, tuple)
        if not is_array or not all(type(length) is int and length >= 0 for length in shape):
            raise pickle.UnpicklingError("an array of another form")
        self.shape, self.kind, self.is_fortran, self.data = shape, dtype.kind, bool(is_fortran), data

    def values(self) -> np.ndarray:
        """Return the values.

        Raises:
            RowFileBroken: they are no numbers, or not as many as the shape says.
        """
        try:
            values = np.frombuffer(self.data, np.dtype(self.kind))
            return values.reshape(self.shape, order="F" if self.is_fortran else "C")
        except (TypeError, ValueError) as error:
            raise RowFileBroken(f"its labels are no numbers: {error}") from error


@dataclass
class _Kind:
    """A type of values."""

    kind: str

    def __setstate__(self, state: Any) -> None:
        """Take the byte order from what NumPy's ``dtype.__setstate__`` takes."""
        if isinstance(state, tuple) and len(state) > 1 and (order := _as_text(state[1])) in ("<", ">"):
            self.kind = order + self.kind.lstrip("<>=|")


def _as_text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _kind(code: object, *_: object) -> _Kind:
    return _Kind(_as_text(code))


def _from_buffer(data: object, dtype: object, shape: object, order: object) -> Array:
    array = Array()
    array.__setstate__((1, shape, dtype, order == "F", bytes(data) if isinstance(data, bytearray) else data))
    return array


def _encoded(text: str, *_: object) -> bytes:
    return text.encode("latin-1")


# All that a pickle may name, and what stands for it here.
_ALLOWED: Mapping[tuple[str, str], Callable[..., Any]] = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): lambda *_: Array() for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _from_buffer for core in ("core", "_core")},
    ("numpy", "ndarray"): Array,
    ("numpy", "dtype"): _kind,
    ("_codecs", "encode"): _encoded,
}


class _PlainUnpickler(pickle.Unpickler):
    """Builds plain values: what a pickle names besides is refused, and never imported."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name."""
        try:
            return _ALLOWED[module, name]
        except KeyError as error:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not executed") from error


def plain_pickle(data: bytes) -> dict[str, Any]:
    """Return the dictionary in a pickle; its keys and texts are text, its arrays ``Array``.

    Raises:
        RowFileBroken: it is damaged, holds something else, or names what is no plain value.
    """
    try:
        document = _PlainUnpickler(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # damaged pickles raise errors of any kind
        raise RowFileBroken(f"it is no pickle of plain values: {error}") from error
    if not isinstance(document, dict):
        raise RowFileBroken(f"it holds a {type(document).__name__}, not a dictionary")
    return {
        _as_text(key): [_as_text(one) if isinstance(one, bytes) else one for one in value]
        if isinstance(value, list)
        else value
        for key, value in document.items()
    }
