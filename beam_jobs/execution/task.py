"""A task: work that is cut into items, the numbers of blocks to encode, shards to assemble or ranges to plan.

Each item is worked on by itself, in any process: the input is in storage or in the task, the output
goes to storage. Doing an item twice writes the same bytes twice.

A runner turns an error that a ``DoFn`` raises into a text of its own. ``carry_faults`` packs our errors so
that ``recover_fault`` finds them in that text again, with their exit code and remedy.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from shardmill.beam_jobs.schemas import FileRef
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import ShardmillError, StorageError, from_event
from shardmill.infra.strict_json import dump_json


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the processing of a single file.

    Attributes:
        seconds: time in which its process could run.
        memory_bytes: memory in addition to that which its process had before.
    """

    seconds: float
    memory_bytes: int


class Task(ABC):
    """Work on items. Can be pickled before it is opened."""

    name: ClassVar[str]

    @property
    def limits(self) -> Limits | None:
        """Return the limits of a file; None for a task that decodes no files."""
        return None

    @property
    def place(self) -> str:
        """Return the URI of the folder of its work: the same in each run that continues this one."""
        return ""

    def open(self) -> None:  # noqa: B027  (optional)
        """Open files that all items need. Called once in each process, before the first item."""

    @abstractmethod
    def do(self, item: int) -> None:
        """Do the work of one item.

        Raises:
            ShardmillError: it cannot be done.
        """

    def close(self) -> None:  # noqa: B027  (optional)
        """Release everything that ``open`` opened."""

    def file_of(self, item: int, number: int) -> FileRef | None:
        """Return a file of an item by its number in it, from 0; None for a task that decodes no files.

        Called where the pool is, on a task that is not opened.
        """
        return None

    def find_culprit(self, file: FileRef) -> bool:
        """Try the file alone that was being processed when a process failed.

        Called where the pool is, on a task that is not opened.

        Returns:
            Whether the file is to blame. Then ``do`` leaves it out from now on.
        """
        return False


def work_name(task: Task) -> str:
    """First part of the names of all jobs of a piece of work: the same in each run that continues it."""
    return f"shardmill-{digest_of(task.place)}"


def job_name(task: Task) -> str:
    """Name of the job that does a task on a cluster."""
    return f"{work_name(task)}-{task.name}"


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
