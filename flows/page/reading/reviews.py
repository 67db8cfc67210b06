"""Read and write what a review needs: the queue of a dataset, its pictures, and its decisions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from shardmill.flows.page.reading.datasets import Datasets
from shardmill.flows.page.reading.remembered import ForSeconds, Remembered
from shardmill.flows.review.findings import runs_of, stamp_of
from shardmill.flows.review.queue import Queue, make_queue
from shardmill.infra.codecs import encode_jpeg
from shardmill.infra.dataset.decisions import Appended, Decision, DecisionLog
from shardmill.infra.dataset.thumbnails import read_small
from shardmill.infra.errors import NotFoundError
from shardmill.infra.storage.range_reader import RangeReader

T = TypeVar("T")

_QUEUES_KEPT = 4
_RUNS_SECONDS = 2.0
_SHORT_SIDE = 256  # pixels of a picture
_QUALITY = 85


class Reviews:
    """The reviews of all datasets under a root; safe to use from many threads."""

    def __init__(self, datasets: Datasets, runs: Path) -> None:
        self._datasets, self._runs = datasets, runs
        self._lock = threading.Lock()
        self._logs: dict[str, tuple[threading.Lock, DecisionLog]] = {}
        self._queues: Remembered[Queue] = Remembered(_QUEUES_KEPT)
        self._shown: dict[tuple[str, int], Queue] = {}  # whose pictures are asked for: not looked at again
        self._runs_of: dict[str, ForSeconds[list[Path]]] = {}
        self._making = threading.Lock()
        self._readers: Remembered[RangeReader] = Remembered(_QUEUES_KEPT)

    def queue(self, name: str) -> Queue:
        """Return the queue of the newest version of a dataset.

        Raises:
            NotFoundError: there is no such dataset. ConfigError: no dataset can have this name.
        """
        numbers = self._datasets.versions(name)
        if not numbers:
            raise NotFoundError(f"no dataset {name!r} under {self._datasets.uri}", "see the list of all")
        return self._queue_of(name, numbers[0])

    def _queue_of(self, name: str, number: int) -> Queue:
        version = self._datasets.open(name, number)
        with self._making:  # who opens the page while it is made waits for the same queue
            runs = ForSeconds(_RUNS_SECONDS, lambda: runs_of(self._runs, name))
            listed = self._runs_of.setdefault(name, runs)
            shards = [shard.sha256 for shard in version.manifest.shards]  # a purge writes them again
            stamp = shards, stamp_of(listed.get())
            found = self._queues.get((name, number), stamp, lambda: make_queue(version, self._runs))
            self._shown.pop((name, number), None)
            self._shown[name, number] = found
            if len(self._shown) > _QUEUES_KEPT:
                self._shown.pop(next(iter(self._shown)))
        return found

    def picture(self, name: str, number: int, record: str) -> bytes:
        """Return the picture of a record in the queue of a version as JPEG.

        Raises:
            NotFoundError: the queue has no such record. Others: as ``read_small``.
        """
        queue = self._shown.get((name, number)) or self._queue_of(name, number)
        row = queue.by_record.get(record)
        if row is None or row.place is None:
            raise NotFoundError(f"there is no picture of {record}", None)
        storage, place = queue.version.storage, row.place
        reader = self._readers.get(name, storage.uri, lambda: RangeReader(storage))
        span = place.offset_bytes, place.length_bytes
        _, pixels = read_small(
            reader, queue.version.manifest, place.shard.path, *span, short_side=_SHORT_SIDE
        )
        return encode_jpeg(pixels, _QUALITY)

    def decisions(self, name: str) -> dict[str, Decision]:
        """Return record id -> decision in force."""
        return self._with_log(name, lambda log: dict(log.read().current))

    def append(self, name: str, new: Sequence[Decision], seen: Mapping[str, str | None]) -> Appended:
        """Add decisions; see ``DecisionLog.append``."""
        return self._with_log(name, lambda log: log.append(new, seen))

    def _with_log(self, name: str, work: Callable[[DecisionLog], T]) -> T:
        with self._lock:
            if name not in self._logs:
                storage = self._datasets.catalog.dataset_storage(name)
                self._logs[name] = threading.Lock(), DecisionLog(storage)
            lock, log = self._logs[name]
        with lock:
            return work(log)
