"""A profile of some steps of a run, for TensorBoard."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from infra import progress as events


class StepProfile:
    """Profiles the steps ``run.profile_steps`` into the folder of the logs."""

    def __init__(self, steps: tuple[int, int] | None, folder: Path) -> None:
        """Prepare the profile.

        Args:
            steps: the first and the last step, counted from 1 over the run; None: no profile.
            folder: the folder of the logs.
        """
        self._steps = steps
        self._folder = folder
        self._is_on = False

    def step_begins(self, step: int) -> None:
        """Begin the profile if ``step`` is its first; a resumed run begins it inside the range."""
        if self._steps is not None and not self._is_on and self._steps[0] <= step <= self._steps[1]:
            tf.profiler.experimental.start(str(self._folder))
            self._is_on = True

    def step_ends(self, step: int) -> None:
        """Write the profile if ``step`` is its last."""
        if self._steps is not None and step == self._steps[1]:
            self.close()

    def close(self) -> None:
        """Write the profile if it is not written yet, as where a run stops inside the range."""
        if self._is_on:
            self._is_on = False
            tf.profiler.experimental.stop()
            events.log(f"profiled steps: {self._folder}/plugins/profile")
