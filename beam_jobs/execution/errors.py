"""Errors of ours on their way out of a process and through a runner.

A runner turns an error that a ``DoFn`` raises into a text of its own. ``carry_faults`` packs our errors so
that ``recover_fault`` finds them in that text again, with their exit code and remedy.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Iterator

from shardmill.infra.errors import ShardmillError, StorageError, from_event
from shardmill.infra.strict_json import dump_json

_PACKED = re.compile(r"shardmill-fault<([A-Za-z0-9+/=]+)>")


class CarriedFault(RuntimeError):
    """One of our errors, packed into a text that survives any runner."""

    def __init__(self, error: ShardmillError) -> None:
        packed = base64.b64encode(dump_json(error.to_event()).encode()).decode()
        super().__init__(f"{error} shardmill-fault<{packed}>")


@contextlib.contextmanager
def carry_faults() -> Iterator[None]:
    """Pack our own errors, and errors of the operating system as ``StorageError``."""
    try:
        yield
    except ShardmillError as error:
        raise CarriedFault(error) from error
    except OSError as error:
        raise CarriedFault(StorageError(f"a read or write failed: {error}")) from error


def recover_fault(error: BaseException) -> ShardmillError | None:
    """Return the ShardmillError that a runner wrapped in an error of its own; None if it is a defect."""
    found = _PACKED.search(str(error))
    return from_event(json.loads(base64.b64decode(found[1]))) if found else None
