"""A profile of some steps of a run."""

from __future__ import annotations

from pathlib import Path

from shardmill.infra import progress as events
from shardmill.training.run.framework import Framework


class StepProfile:
    """Profiles the steps ``run.profile_steps``."""

    def __init__(self, steps: tuple[int, int] | None, framework: Framework, logs: Path) -> None:
        """Prepare the profile.

        Args:
            steps: the first and the last step, counted from 1 over the run; None: no profile.
            framework: records them.
            logs: the folder of the logs.
        """
        self._steps = steps
        self._framework, self._logs = framework, logs
        self._is_on = False

    def step_begins(self, step: int) -> None:
        """Begin the profile if ``step`` is its first; a resumed run begins it inside the range."""
        if self._steps is not None and not self._is_on and self._steps[0] <= step <= self._steps[1]:
            self._framework.start_profile(self._logs)
            self._is_on = True

    def step_ends(self, step: int) -> None:
        """Write the profile if ``step`` is its last."""
        if self._steps is not None and step == self._steps[1]:
            self.close()

    def close(self) -> None:
        """Write the profile if it is not written yet, as where a run stops inside the range."""
        if self._is_on:
            self._is_on = False
            events.log(f"profiled steps: {self._framework.stop_profile()}")
