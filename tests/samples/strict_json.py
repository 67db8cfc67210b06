"""Read every JSON that a folder holds as the standard has it: without NaN and Infinity."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pyarrow.parquet as pq


def strict(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is no JSON.
    """

    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def strict_documents(folder: Path) -> dict[str, int]:
    """Read all JSON below a folder, also in other files; the number of documents by kind of file."""
    counts: dict[str, int] = {}
    for path in sorted(folder.rglob("*")):
        for text in _texts(path) if path.is_file() else ():
            try:
                strict(text)
            except ValueError as error:
                raise AssertionError(f"{path}: {error}: {text[:200]!r}") from error
            counts[path.suffix] = counts.get(path.suffix, 0) + 1
    return counts


def _texts(path: Path) -> Iterator[bytes]:
    if path.suffix == ".json":
        yield path.read_bytes()
    elif path.suffix == ".jsonl":
        yield from path.read_bytes().splitlines()
    elif path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            stored = archive.read("progress.npy")
        yield stored[stored.index(b"\n") + 1 :]
    elif path.suffix == ".parquet":
        for value in (pq.read_schema(path).metadata or {}).values():
            if value[:1] in b"{[":
                yield value
