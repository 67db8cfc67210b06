"""Folders for files that a kind of source makes before its images can be listed."""

from __future__ import annotations

from dataclasses import dataclass

from shardmill.infra.storage.filesystem import Storage


@dataclass(frozen=True)
class Workplace:
    """The folders of a run that kinds of sources may write to.

    Attributes:
        spool: folder of unfinished work of the run; it lasts until the version is published.
        dataset: folder of the dataset; files there stay for the next versions.
    """

    spool: Storage
    dataset: Storage
