"""Reading of single images: what every kind of source offers to the workers."""

from __future__ import annotations

from typing import Protocol

from shardmill.beam_jobs.schemas import FileRef


class Reader(Protocol):
    """Reads images, each by its reference.

    A reader is made in the job and pickled to every process that reads. So it is cheap to make and to pickle,
    and opens containers only when an image of theirs is read. ``SourceFolder`` is the reader of plain files.
    """

    def read(self, file: FileRef) -> bytes:
        """Read a whole image, if it has not changed since it was listed.

        The report of an earlier version knows only the URI of an image, its size and time of change. A
        ``file`` that has no ``container`` although it is a member comes from there: it is found by its URI,
        or refused as UNREADABLE.

        Raises:
            SourceFault: it is gone, changed, unreadable or too large. StorageError: this machine is at fault.
        """
