"""A task: work that is cut into items, the numbers of blocks to encode, shards to assemble or ranges to plan.

Each item is worked on by itself, in any process: the input is in storage or in the task, the output
goes to storage. Doing an item twice writes the same bytes twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from shardmill.beam_jobs.schemas import FileRef
from shardmill.infra.digests import digest_of


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
