"""Measure the times of the stages of a job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from shardmill.infra.progress.events import work_clock


@dataclass
class StageTimes:
    """The wall time and the processor time of each stage of a job (seconds).

    Attributes:
        seconds: stage -> wall time.
        cpu_seconds: stage -> processor time of this process, and of others where it is added.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    _started: float = field(default_factory=work_clock)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the time of the block to the stage, unless the block raises an exception."""
        started, cpu_started = work_clock(), time.process_time()
        yield
        seconds, cpu_seconds = work_clock() - started, time.process_time() - cpu_started
        self.seconds[name] = round(self.seconds.get(name, 0) + seconds, 3)
        self.add_cpu_seconds(name, cpu_seconds)

    def add_cpu_seconds(self, name: str, cpu_seconds: float) -> None:
        """Add to the processor time of a stage (seconds)."""
        self.cpu_seconds[name] = round(self.cpu_seconds.get(name, 0) + cpu_seconds, 3)

    def since_start(self) -> float:
        """Return the wall time since the job began, without waiting (seconds)."""
        return work_clock() - self._started
