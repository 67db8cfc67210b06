"""The passes over a split: which steps each iteration of a dataset goes through."""

from __future__ import annotations

import threading

from shardmill.infra.arguments import at_least
from shardmill.infra.errors import UsageError

# Of all passes together, so that they can be pickled; it is held for microseconds.
_BEGINNING = threading.Lock()


class Passes:
    """Gives every iteration of a dataset its steps: those of the next epoch, or the same each time.

    Steps are counted over the whole run: epoch * steps_per_epoch + step. Safe for many threads; a copy in
    another process counts by itself.

    Attributes:
        is_fixed: every pass has the same steps.
    """

    def __init__(self, first: range, length: int | None = None) -> None:
        """Begin no pass yet.

        Args:
            first: the steps of the first pass.
            length: the number of steps of each later pass, which begins where the one before ends; None: each
                pass has the steps of the first.
        """
        self.is_fixed = length is None
        self._first, self._length = first, length
        self._upcoming = first

    @property
    def upcoming(self) -> range:
        """The steps of the pass that begins next."""
        return self._upcoming

    def begin(self) -> range:
        """Begin a pass and return its steps."""
        with _BEGINNING:
            steps, length = self._upcoming, self._length
            self._upcoming = self._first if length is None else range(steps.stop, steps.stop + length)
            return steps

    def continue_with(self, steps: range) -> None:
        """Let the next pass have these steps; those after it follow as always."""
        self._upcoming = steps


def passes_of(
    steps_per_epoch: int, *, epoch: int | None, first_epoch: int, epochs: int = 1, step: int = 0
) -> Passes:
    """Return the passes that the arguments of a caller describe.

    Args:
        steps_per_epoch: the steps of an epoch.
        epoch: the epoch of every pass; None: each pass is the next epoch.
        first_epoch: the epoch of the first pass.
        epochs: epochs in a pass, one after the other.
        step: the first step within the first epoch; with ``epoch``, of every pass.

    Raises:
        UsageError: a number is out of range, or both ``epoch`` and ``first_epoch`` are given.
    """
    if epoch is not None and first_epoch:
        raise UsageError(
            f"epoch = {epoch} and first_epoch = {first_epoch} contradict each other",
            "give epoch to read this epoch in every pass, or first_epoch to go on from it pass by pass",
        )
    at_least(1, epochs=epochs)
    at_least(0, epoch=epoch, first_epoch=first_epoch)
    if not 0 <= step <= steps_per_epoch:
        raise UsageError(f"step = {step} of an epoch of {steps_per_epoch} steps")
    begin = first_epoch if epoch is None else epoch
    steps = range(begin * steps_per_epoch + step, (begin + epochs) * steps_per_epoch)
    if epoch is not None:
        return Passes(steps)
    length = epochs * steps_per_epoch
    return Passes(steps or range(steps.stop, steps.stop + length), length)
