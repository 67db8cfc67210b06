"""A profile of some steps of a run, with any framework. No TensorFlow."""

from __future__ import annotations

from typing import Protocol

from shardmill.infra import progress as events


class Profiler(Protocol):
    """Records what a framework does."""

    def start(self) -> None:
        """Begin to record."""

    def stop(self) -> str:
        """Write what was recorded, and return where."""


class StepProfile:
    """Profiles the steps ``run.profile_steps``."""

    def __init__(self, steps: tuple[int, int] | None, profiler: Profiler) -> None:
        """Prepare the profile.

        Args:
            steps: the first and the last step, counted from 1 over the run; None: no profile.
            profiler: records them.
        """
        self._steps = steps
        self._profiler = profiler
        self._is_on = False

    def step_begins(self, step: int) -> None:
        """Begin the profile if ``step`` is its first; a resumed run begins it inside the range."""
        if self._steps is not None and not self._is_on and self._steps[0] <= step <= self._steps[1]:
            self._profiler.start()
            self._is_on = True

    def step_ends(self, step: int) -> None:
        """Write the profile if ``step`` is its last."""
        if self._steps is not None and step == self._steps[1]:
            self.close()

    def close(self) -> None:
        """Write the profile if it is not written yet, as where a run stops inside the range."""
        if self._is_on:
            self._is_on = False
            events.log(f"profiled steps: {self._profiler.stop()}")
