"""Fetch all addresses of a run, from many hosts at a time; continue where an earlier run stopped.

The event loop runs in a thread of its own. A request to stop reaches the main thread, which ends the loop, so
that no library in the loop can swallow it. What has come by then is stored.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from anyio.from_thread import start_blocking_portal

from shardmill.beam_jobs.config import UrlsConfig
from shardmill.beam_jobs.sources.fetching.addresses import Address
from shardmill.beam_jobs.sources.fetching.client import MAY_PASS, Client
from shardmill.beam_jobs.sources.fetching.fetcher import Fetcher
from shardmill.beam_jobs.sources.fetching.store import Answer, RunStore
from shardmill.infra.progress import progress, stage

REQUESTS_SCHEMA = pa.schema(
    [
        ("uri", pa.string()),  # of the address, without credentials
        ("url", pa.string()),  # the address that is requested
        ("host", pa.string()),
    ]
)

STAGE, UNIT = "fetch", "addresses"

_THREADS = 16  # that resolve names and write bytes
_FLUSH_SECONDS = 1.0  # a killed run asks again for what came in the last second,
_FLUSH_FRACTION = 0.01  # or in the last hundredth of its time, if that is more
_SHOW_SECONDS = 0.5


def fetch_all(
    requests: pa.Table,
    known: pa.Table,
    answered: pa.Array,
    store: RunStore,
    settings: UrlsConfig,
    max_bytes: int,
) -> None:
    """Fetch addresses; their answers and bytes go to the store.

    Args:
        requests: REQUESTS_SCHEMA, no URI twice.
        known: ANSWERS_SCHEMA, of earlier runs: unchanged bytes are not fetched.
        answered: URIs that are not asked for, because this run has their answer: string [N].
        store: answers that the run has stored.
        settings: limits and politeness.
        max_bytes: most bytes of an image.

    Raises:
        StorageError: the store cannot be written. Cancelled: the run was stopped; its answers are stored.
    """
    todo = requests.filter(pc.invert(pc.is_in(requests["uri"], answered)))
    stage(STAGE, requests.num_rows, unit=UNIT, done=requests.num_rows - todo.num_rows)
    if todo.num_rows:
        todo = todo.sort_by([("host", "ascending"), ("uri", "ascending")]).combine_chunks()
        work = _Round(todo, known, store, settings, max_bytes, requests.num_rows)
        with start_blocking_portal() as portal:
            portal.call(work.run)
    progress(STAGE, requests.num_rows, requests.num_rows, unit=UNIT)


def settled_uris(answers: pa.Table) -> pa.Array:
    """Return the addresses that need not be asked for again: string [N].

    Args:
        answers: ANSWERS_SCHEMA.
    """
    rows = answers.select(["uri", "reason"]).to_pylist()
    last = {row["uri"]: row["reason"] for row in rows}
    return pa.array([uri for uri, reason in last.items() if reason not in MAY_PASS], pa.string())


class _Round:
    """The addresses that are asked for.

    Args:
        todo: REQUESTS_SCHEMA, sorted by host.
        known, store, settings, max_bytes: see ``fetch_all``.
        total: number of addresses, with those that were answered before.
    """

    def __init__(
        self,
        todo: pa.Table,
        known: pa.Table,
        store: RunStore,
        settings: UrlsConfig,
        max_bytes: int,
        total: int,
    ) -> None:
        self._todo = todo
        self._known = known.take(pc.index_in(todo["uri"], known["uri"].combine_chunks()))
        self._store = store
        self._settings = settings
        self._client = Client(settings, max_bytes)
        self._total = total
        self._num_done = total - todo.num_rows
        self._shown = 0.0
        self._answers: list[Answer] = []  # that are not stored yet

    async def run(self) -> None:
        """Ask for all of them."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS))
        fetcher = Fetcher(self._client, self._settings, self._keep)
        hosts = self._hosts()
        try:
            async with self._client.connected(), asyncio.TaskGroup() as storing:
                flushing = storing.create_task(self._flush_regularly())
                async with asyncio.TaskGroup() as workers:
                    for _ in range(self._settings.connections):
                        workers.create_task(self._ask_hosts(hosts, fetcher))
                flushing.cancel()
        except BaseExceptionGroup as group:
            raise _first_of(group) from group
        finally:
            self._flush()

    def _hosts(self) -> Iterator[deque[int]]:
        """Yield the rows of each host, those with the most first: they take the longest."""
        codes = self._todo["host"].combine_chunks().dictionary_encode().indices.to_numpy()
        starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
        ends = np.r_[starts[1:], len(codes)]
        for at in np.argsort(starts - ends, kind="stable"):
            yield deque(range(starts[at], ends[at]))

    async def _ask_hosts(self, hosts: Iterator[deque[int]], fetcher: Fetcher) -> None:
        """Ask one host after the other, each for several addresses at a time."""
        for rows in hosts:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._settings.connections_per_host, len(rows))):
                    group.create_task(self._ask_host(rows, fetcher))

    async def _ask_host(self, rows: deque[int], fetcher: Fetcher) -> None:
        while rows:
            row = rows.popleft()
            address = Address(self._todo["uri"][row].as_py(), self._todo["url"][row].as_py())
            (known,) = self._known.slice(row, 1).to_pylist()
            self._note(await fetcher.fetch(address, None if known["uri"] is None else Answer(**known)))

    async def _keep(self, uri: str, content: BinaryIO) -> None:
        await asyncio.to_thread(self._store.put, uri, content)

    def _note(self, answer: Answer) -> None:
        self._answers.append(answer)
        self._num_done += 1
        if (now := time.monotonic()) - self._shown > _SHOW_SECONDS:
            self._shown = now
            progress(STAGE, self._num_done, self._total, unit=UNIT)

    async def _flush_regularly(self) -> None:
        started = time.monotonic()
        while True:
            elapsed = time.monotonic() - started
            await asyncio.sleep(max(_FLUSH_SECONDS, _FLUSH_FRACTION * elapsed))
            self._flush()

    def _flush(self) -> None:
        """Store the answers that have come since the last time."""
        if self._answers:
            self._store.add_answers(self._answers)
            self._answers = []


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group, and of the groups in it."""
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first
