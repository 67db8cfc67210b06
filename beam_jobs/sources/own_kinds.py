"""Errors of Python inside a user's own kind of source, told apart from defects of Shardmill."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.reading import Reader
from shardmill.infra.own_code import OwnCode, faults_of_own_code, is_own

_PAGE = "docs/add-a-source-kind.md"
# Workers quarantine the one image whose reading raises these.
_OF_ONE_IMAGE = (ValueError, ArithmeticError, LookupError, TypeError, RuntimeError)


def own_kind(kind: str) -> OwnCode:
    """Return the code of a user's own kind.

    Raises:
        ConfigError: ``source.kind`` is no name of a module.
    """
    return OwnCode.named("source.kind", kind, _PAGE, "list_inputs")


def faults_of(kind: str, passed: tuple[type[Exception], ...] = ()) -> AbstractContextManager[None]:
    """Turn an unexpected exception from a user's own kind, in a block, into an error that names its line.

    Args:
        kind: ``source.kind``.
        passed: exceptions that stay as they are.
    """
    named = {kind: f"source.kind = {kind!r}"} if is_own(kind) else {}
    return faults_of_own_code(named, _PAGE, passed)


@dataclass(frozen=True)
class OwnReader:
    """The reader of a user's own kind, whose unexpected exceptions name it.

    Attributes:
        reader: reader that the kind opened.
        kind: ``source.kind``.
    """

    reader: Reader
    kind: str

    def read(self, file: FileRef) -> bytes:
        """Read a whole image, as ``Reader`` says."""
        with faults_of(self.kind, _OF_ONE_IMAGE):
            return self.reader.read(file)

    def __reduce__(self) -> tuple[Callable[[str, bytes], OwnReader], tuple[str, bytes]]:
        return _unpickled, (self.kind, pickle.dumps(self.reader))


def _unpickled(kind: str, reader: bytes) -> OwnReader:
    own_kind(kind).load()  # first: a worker on another machine has not looked for it yet
    return OwnReader(pickle.loads(reader), kind)
