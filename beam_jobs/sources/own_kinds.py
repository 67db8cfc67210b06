"""Errors of Python inside a user's own kind of source, told apart from defects of Shardmill."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from beam_jobs.schemas import FileRef
from beam_jobs.sources.reading import Reader
from infra.errors import ConfigError, ShardmillError, UnusableInput
from infra.progress import log

# Workers quarantine the one image whose reading raises these.
_OF_ONE_IMAGE = (ValueError, ArithmeticError, LookupError, TypeError, RuntimeError)
_OURS = ("beam_jobs", "infra", "flows", "training")


@contextmanager
def faults_of(kind: str, passed: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn an unexpected exception from the package of a user's own kind into an error that names the line.

    An exception belongs to that package if its code, or a library that it called, raised it.

    Args:
        kind: ``source.kind``.
        passed: exceptions that stay as they are.

    Raises:
        ConfigError: the package failed.
    """
    try:
        yield
    except Exception as error:
        is_meant = isinstance(error, (ShardmillError, UnusableInput, *passed))
        place = None if is_meant else _place_of(error, kind)
        if place is None:
            raise
        log("".join(traceback.format_exception(error)).rstrip(), level="error")
        raise ConfigError(
            f"{place}, failed: {type(error).__name__}: {error}",
            f"mend it: it belongs to your own source.kind = {kind!r} (docs/add-a-source-kind.md)",
        ) from error


@dataclass(frozen=True)
class OwnReader:
    """The reader of a user's own kind, whose unexpected exceptions name it.

    Attributes:
        reader: of that kind.
        kind: ``source.kind``.
    """

    reader: Reader
    kind: str

    def read(self, file: FileRef) -> bytes:
        """Read a whole image, as ``Reader`` says."""
        with faults_of(self.kind, _OF_ONE_IMAGE):
            return self.reader.read(file)


def is_own(kind: str) -> bool:
    """Tell whether a kind of source is a module of the user."""
    return "." in kind and kind.partition(".")[0] not in _OURS


def _place_of(error: Exception, kind: str) -> str | None:
    """Return module and line of a user's kind at which an exception arose; None if our code raised it."""
    if not is_own(kind):
        return None
    package = kind.partition(".")[0]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] == package:
            return f"{module}, line {line}"
        if module.partition(".")[0] in _OURS and module != __name__:
            return None
    return None
