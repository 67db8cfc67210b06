"""Two writers that create the same files at the same moments."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from typing import Any

from shardmill.infra.errors import PublishConflict
from shardmill.infra.storage.filesystem import Storage

NUM_RACES = 10


def file_of(race: int) -> str:
    """The file that both writers of a race create."""
    return f"manifests/{race:06d}.json"


def create_all(location: str, writer: int, start: Any, outcomes: Any) -> None:
    """Create the file of every race, each at the same moment as the other writer; put (race, writer, won)."""
    storage = Storage.at(location)
    for race in range(NUM_RACES):
        start.wait(timeout=60)
        try:
            storage.create_if_absent(file_of(race), b"the same bytes from both")
        except PublishConflict:
            outcomes.put((race, writer, False))
        else:
            outcomes.put((race, writer, True))


def winners(location: str, *, processes: bool) -> dict[int, list[int]]:
    """Race -> the writers that were told that they had created the file."""
    context = multiprocessing.get_context("spawn")
    start: Any = context.Barrier(2) if processes else threading.Barrier(2)
    outcomes = context.Queue()
    make: Callable[..., Any] = context.Process if processes else threading.Thread
    writers = [make(target=create_all, args=(location, writer, start, outcomes)) for writer in range(2)]
    for writer in writers:
        writer.start()
    found: dict[int, list[int]] = {race: [] for race in range(NUM_RACES)}
    for _ in range(2 * NUM_RACES):
        race, number, won = outcomes.get(timeout=120)
        if won:
            found[race].append(number)
    for writer in writers:
        writer.join(timeout=60)
    return found
