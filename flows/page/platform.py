"""Everything that the handlers of one page share."""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass, replace

from starlette.concurrency import run_in_threadpool

from shardmill.flows.page.options import PageOptions
from shardmill.flows.page.reading.datasets import Datasets
from shardmill.flows.page.reading.prefect import Activity, Counts, PrefectApi, PrefectAway
from shardmill.flows.page.reading.remembered import Known, LastKnown
from shardmill.flows.page.reading.reviews import Reviews
from shardmill.flows.page.reading.runs import Runs
from shardmill.flows.page.tensorboard import TensorBoardProxy

_ACTIVITY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk: the kind of data on it, the folder, and the total and free space (bytes)."""

    holds: str
    folder: str
    total_bytes: int
    free_bytes: int


class Platform:
    """The sources of the page's data, with a copy of the data last read.

    Attributes:
        options: options of the page.
        datasets, runs: readers of the folders.
        reviews: what was found in datasets, and decisions about it.
        review_token: a secret that only pages of this process know.
        prefect: reader of Prefect's API; None: the page stands alone.
        tensorboard: passes requests on to TensorBoard; None: it does not run.
    """

    def __init__(self, options: PageOptions) -> None:
        self.options = options
        self.datasets = Datasets(options.root)
        self.runs = Runs(options.runs)
        self.reviews = Reviews(self.datasets, self.runs.folder)
        self.review_token = secrets.token_urlsafe(32)
        self.prefect = PrefectApi(options.api_url, options.api_auth) if options.api_url else None
        self.tensorboard = TensorBoardProxy(options.tensorboard_url) if options.tensorboard_url else None
        if self.prefect is not None:
            ask = ("Prefect's API", _ACTIVITY_SECONDS)
            self._activity = LastKnown(*ask, self.prefect.activity, PrefectAway)
            self._counts = LastKnown(*ask, self.prefect.counts, PrefectAway)

    async def activity(self) -> Activity | str | None:
        """Return Prefect's last known runs; a text if none are known; None if there is no Prefect.

        Many viewers ask once in two seconds together.
        """
        if self.prefect is None:
            return None
        known = await self._activity.get()
        if known.value is None:
            return known.problem
        return replace(known.value, read=known.read, problem=known.problem)

    async def counts(self) -> Known[Counts] | None:
        """Return Prefect's last known counts of runs; None if there is no Prefect."""
        return None if self.prefect is None else await self._counts.get()

    def disks(self) -> list[Disk]:
        """Return the local disks of datasets and runs; disks that cannot be read are left out."""
        datasets = self.datasets.catalog.storage.local_path()
        runs = self.runs.folder if self.runs.copy is None else None
        found = []
        for holds, folder in (("datasets", datasets), ("runs", runs)):
            if folder is None:
                continue
            # The folder may not exist yet.
            there = next((path for path in (folder, *folder.parents) if path.is_dir()), None)
            if there is None:
                continue
            usage = shutil.disk_usage(there)
            found.append(Disk(holds, str(folder), usage.total, usage.free))
        return found

    def open(self) -> None:
        """Begin to copy the runs, if they are in an object store."""
        if self.runs.copy is not None:
            self.runs.copy.start()

    async def close(self) -> None:
        """Close the connections, and stop to copy."""
        if self.runs.copy is not None:
            await run_in_threadpool(self.runs.copy.close)
        if self.prefect is not None:
            self._activity.close()
            self._counts.close()
        for each in (self.prefect, self.tensorboard):
            if each is not None:
                await each.close()
