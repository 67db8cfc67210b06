"""Fetch shards ahead of use in background threads.

A watching thread looks a few times a second how far each split has been read, and lists the shards that the
next steps need and that are missing. Fetching threads take shards from the front of the list. No shard is
evicted for one that is needed later.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shardmill.infra import progress as events
from shardmill.infra.errors import ShardmillError
from shardmill.training.reading.staging.shard_lookahead import ShardLookahead, StepRange

_FETCHING_THREADS = 4
_TICK_SECONDS = 0.2
_IDLE_TICK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class PrefetchActions:
    """The functions that a ``Prefetcher`` calls from its threads.

    Attributes:
        prepare: takes the path of a shard and the steps until it is needed. Returns a function that fetches
            the shard (space is already reserved), or None if there is no space yet.
        is_staged: takes the path of a shard. Returns whether it is staged.
        tick: called a few times a second.
    """

    prepare: Callable[[str, float], Callable[[], None] | None]
    is_staged: Callable[[str], bool]
    tick: Callable[[], None]


class Prefetcher:
    """Knows which shards each split needs next, and owns the threads that fetch them."""

    def __init__(self, budget_bytes: int, actions: PrefetchActions) -> None:
        self._budget_bytes = budget_bytes
        self._actions = actions
        self._lookaheads: dict[str, ShardLookahead] = {}
        self._run_steps: dict[str, int] = {}
        self._distances: dict[str, float] = {}
        self._missing: list[str] = []
        self._under_way: set[str] = set()
        self._changed = threading.Condition()
        self._updating = threading.Lock()
        self._turn = threading.Lock()  # space is reserved in the order of need, whichever thread is quicker
        self._threads: list[threading.Thread] = []
        self.closed = threading.Event()

    def prefetch(self, steps: StepRange, num_bytes: dict[str, int]) -> None:
        """Fetch the shards of these steps. They replace earlier steps of the same split.

        Args:
            steps: the steps of one split that will be read.
            num_bytes: path -> size of each shard of the split.
        """
        sizes = np.array([num_bytes[path] for path in steps.table.paths], dtype=np.int64)
        with self._changed:
            self._lookaheads[steps.table.split] = ShardLookahead(steps, sizes, self._budget_bytes)
            self._run_steps[steps.table.split] = steps.start
        self.start()
        for number in range(_FETCHING_THREADS):
            self._run(f"shardmill-staging-{number}", self._fetch)

    def start(self) -> None:
        """Start the watching thread."""
        self._run("shardmill-staging", self._watch)

    def advance(self, split: str, run_step: int) -> None:
        """Note that a split is being read at this step."""
        self._run_steps[split] = run_step

    def distance(self, path: str) -> float:
        """Return the steps until a shard is needed again; inf: not foreseen, negative: used a moment ago."""
        return self._distances.get(path, math.inf)

    def close(self) -> None:
        """End the threads. A fetch under way is given up."""
        self.closed.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _run(self, name: str, work: Callable[[], None]) -> None:
        with self._changed:
            if self.closed.is_set() or any(thread.name == name for thread in self._threads):
                return
            thread = threading.Thread(target=work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _watch(self) -> None:
        while not self.closed.is_set():
            self._actions.tick()
            self.update()
            self.closed.wait(_TICK_SECONDS if self._distances else _IDLE_TICK_SECONDS)

    def update(self) -> None:
        """Find out which shards the next steps of each split need, how soon, and which are missing."""
        if self._lookaheads:
            with self._updating:
                self._update()

    def _update(self) -> None:
        found: dict[str, float] = {}
        for split, lookahead in list(self._lookaheads.items()):
            at = self._run_steps[split]
            if at >= lookahead.steps.stop - 1:
                continue
            lookahead.advance(at)
            for shard, run_step in lookahead.next_uses(at).items():
                found[lookahead.steps.table.paths[shard]] = run_step - at  # a shard is of one split
        nearest = sorted((path for path in found if found[path] >= 0), key=found.__getitem__)
        missing = [path for path in nearest if not self._actions.is_staged(path)]
        with self._changed:
            self._distances = found
            self._missing = [path for path in missing if path not in self._under_way]
            self._changed.notify_all()

    def _fetch(self) -> None:
        while True:
            with self._turn:
                path = self._next()
                if path is None:
                    return
                work = self._prepared(path)
            try:
                if work is not None:
                    work()
            finally:
                with self._changed:
                    self._under_way.discard(path)

    def _prepared(self, path: str) -> Callable[[], None] | None:
        try:
            work = self._actions.prepare(path, self.distance(path))
        except ShardmillError as error:
            events.log(f"not staged ahead of use: {error.message}", level="warning")
            work = None
        if work is None:
            with self._changed:
                self._missing.clear()  # there is no space for later ones either
        return work

    def _next(self) -> str | None:
        with self._changed:
            while not self._missing:
                if self.closed.is_set():
                    return None
                self._changed.wait()
            if self.closed.is_set():
                return None
            path = self._missing.pop(0)
            self._under_way.add(path)
            return path
