"""Where a run may put what it has to do before it can list its source."""

from __future__ import annotations

from dataclasses import dataclass

from infra.storage.filesystem import Storage


@dataclass(frozen=True)
class Workplace:
    """The folders of a run that kinds of sources may write to.

    Attributes:
        spool: of the run; it lasts until the version is published.
        dataset: folder of the dataset; what is there lasts for the next versions.
    """

    spool: Storage
    dataset: Storage
