"""Output files that a person names, outside the datasets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from shardmill.infra.errors import StorageError


@contextlib.contextmanager
def writes(path: Path) -> Iterator[None]:
    """Raise a failure of the block to write ``path`` as an error that names the file.

    Raises:
        StorageError: the file cannot be written.
    """
    try:
        yield
    except OSError as error:
        remedy = "name a file in a folder that is there and that you may write to"
        raise StorageError(f"cannot write {path}: {error.strerror or error}", remedy) from error
