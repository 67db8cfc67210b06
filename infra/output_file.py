"""Files beside the datasets that a person names, to be written to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from infra.errors import StorageError


@contextlib.contextmanager
def writes(path: Path) -> Iterator[None]:
    """What is done in the block writes ``path``.

    Raises:
        StorageError: it cannot.
    """
    try:
        yield
    except OSError as error:
        remedy = "name a file in a folder that is there and that you may write to"
        raise StorageError(f"cannot write {path}: {error.strerror or error}", remedy) from error
