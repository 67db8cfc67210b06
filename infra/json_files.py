"""Read and write JSON that a file keeps between processes; check its shape before anyone uses a value of it.

A shape is a dataclass, a Pydantic model, or a ``TypedDict`` of ``typing_extensions``.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic_core import to_jsonable_python

from shardmill.infra.errors import CorruptDataError
from shardmill.infra.storage.local import file_writer
from shardmill.infra.strict_json import dump_json

# A TypedDict under it keeps the keys that it does not name.
open_shape = with_config(ConfigDict(extra="allow", strict=True))

T = TypeVar("T")


def read_json(path: Path, shape: type[T], remedy: str) -> T:
    """Read the JSON of a file.

    Raises:
        CorruptDataError: it cannot be read, is no JSON, or has another shape. The error names the file, and
            the remedy what to do without it.
    """
    return decode_json(_content(path, remedy), shape, str(path), remedy)


def read_json_lines(path: Path, shape: type[T], remedy: str) -> list[T]:
    """Read a file of JSON lines, each of one shape.

    Raises:
        CorruptDataError: as ``read_json``; it names the line.
    """
    lines = enumerate(_content(path, remedy).splitlines(), 1)
    return [decode_json(line, shape, f"line {number} of {path}", remedy) for number, line in lines]


def write_json(path: Path, value: Any, opener: Callable[[str, int], int] | None = None) -> None:
    """Write a value, such as a dataclass, as the JSON of a file, which appears whole or not at all.

    Args:
        path: the file; its folders are made.
        value: what ``read_json`` will return.
        opener: passed to ``open``; it may choose who can read the file.
    """
    with file_writer(path, opener=opener) as file:
        file.write(dump_json(to_jsonable_python(value)).encode())


def _content(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CorruptDataError(f"{path} cannot be read: {error.strerror or error}", remedy) from error


def decode_json(data: bytes | str, shape: type[T], named: str, remedy: str) -> T:
    """Return the value of a JSON text.

    Args:
        data: the text.
        shape: what it must be.
        named: the file, or the line of it, for the error.
        remedy: for the error.

    Raises:
        CorruptDataError: it is no JSON, or has another shape.
    """
    try:
        value: T = _validated(data, _adapter(cast("Any", shape)))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(map(str, problem["loc"]))
        at = f" ({key})" if key else ""
        raise CorruptDataError(f"{named} cannot be read: {problem['msg']}{at}", remedy) from error
    return value


def _validated(data: bytes | str, adapter: TypeAdapter[Any]) -> Any:
    try:
        return adapter.validate_json(data, strict=True)
    except ValidationError as error:
        if error.errors()[0]["type"] != "json_invalid":
            raise
        # Pydantic's parser refuses lone surrogates, which stand for the bytes of names that are not UTF-8.
        try:
            value = json.loads(data)
        except ValueError:
            raise error from None
        return adapter.validate_python(value, strict=True)


@functools.cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
