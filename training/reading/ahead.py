"""Work ahead of use: what the followed courses need next, fetched by threads of the background.

A watching thread looks a few times a second where the courses are, and lists what they need and have not;
fetching threads take from the front of the list. Nothing is fetched at the cost of what is needed sooner.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from infra import progress as events
from infra.errors import ShardmillError
from training.reading.coming import ComingShards, Course

_FETCHING_THREADS = 4
_TICK_SECONDS = 0.2
_IDLE_TICK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Acts:
    """What the threads do, given by their owner.

    Attributes:
        prepare: (path of a shard, steps until it is needed) -> what fetches it, its room being reserved; None
            where there is no room for it yet.
        is_staged: path -> whether it is there.
        tick: called now and then.
    """

    prepare: Callable[[str, float], Callable[[], None] | None]
    is_staged: Callable[[str], bool]
    tick: Callable[[], None]


class Ahead:
    """Courses that are followed, and the threads that do."""

    def __init__(self, budget_bytes: int, acts: Acts) -> None:
        self._budget_bytes = budget_bytes
        self._acts = acts
        self._courses: dict[str, ComingShards] = {}
        self._reached: dict[str, int] = {}
        self._distances: dict[str, float] = {}
        self._missing: list[str] = []
        self._under_way: set[str] = set()
        self._changed = threading.Condition()
        self._looking = threading.Lock()
        self._turn = threading.Lock()  # to reserve room: in the order of need, whichever thread is quicker
        self._threads: list[threading.Thread] = []
        self.closed = threading.Event()

    def follow(self, course: Course, num_bytes: dict[str, int]) -> None:
        """Fetch what a course needs; it takes the place of an earlier one of the same split.

        Args:
            course: of one split.
            num_bytes: path -> size of each shard of the split.
        """
        sizes = np.array([num_bytes[path] for path in course.table.paths], dtype=np.int64)
        with self._changed:
            self._courses[course.table.split] = ComingShards(course, sizes, self._budget_bytes)
            self._reached[course.table.split] = course.start
        self.start()
        for number in range(_FETCHING_THREADS):
            self._run(f"shardmill-staging-{number}", self._fetch)

    def start(self) -> None:
        """Watch, from now on."""
        self._run("shardmill-staging", self._watch)

    def reached(self, split: str, run_step: int) -> None:
        """A course is at this step."""
        self._reached[split] = run_step

    def distance(self, path: str) -> float:
        """Steps until a shard is needed again; inf: not foreseen, below 0: its time is hardly over."""
        return self._distances.get(path, math.inf)

    def close(self) -> None:
        """End the threads; a fetch under way is given up."""
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
            self._acts.tick()
            self.look()
            self.closed.wait(_TICK_SECONDS if self._distances else _IDLE_TICK_SECONDS)

    def look(self) -> None:
        """Find out where the courses are: what is needed, how soon, and what of it is missing."""
        if self._courses:
            with self._looking:
                self._look()

    def _look(self) -> None:
        found: dict[str, float] = {}
        for split, coming in list(self._courses.items()):
            at = self._reached[split]
            if at >= coming.course.stop - 1:
                continue
            coming.reach(at)
            for shard, run_step in coming.next_uses(at).items():
                path = coming.course.table.paths[shard]
                found[path] = run_step - at  # a shard is of one split
        nearest = sorted((path for path in found if found[path] >= 0), key=found.__getitem__)
        missing = [path for path in nearest if not self._acts.is_staged(path)]
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
            work = self._acts.prepare(path, self.distance(path))
        except ShardmillError as error:
            events.log(f"not staged ahead of use: {error.message}", level="warning")
            work = None
        if work is None:
            with self._changed:
                self._missing.clear()  # what is needed later finds no room either; the next look tells
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
