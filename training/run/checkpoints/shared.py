"""The checkpoints of rank 0, for all ranks.

Rank 0 alone reads and writes them. What it reads it tells the others through the collectives, so the folder
need not be shared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from shardmill.training.ranks.peers import Peers
from shardmill.training.run.checkpoints.checkpoints import Checkpoints, Progress, check_finite


class SharedCheckpoints:
    """The checkpoints of rank 0, for all ranks. Every rank calls each method at the same point."""

    def __init__(self, own: Checkpoints | None, ranks: Peers) -> None:
        """Share checkpoints.

        Args:
            own: the checkpoints of the run; None on all ranks but the first.
            ranks: the ranks.
        """
        self._own = own
        self._ranks = ranks

    def save(
        self,
        run_step: int,
        variables: list[Any],
        progress: Progress,
        before: Callable[[], object] | None = None,
    ) -> None:
        """Write the checkpoint of a step in the background, on rank 0.

        Raises:
            Diverged: a value is not finite; on every rank that has such a value.
        """
        if self._own is None:
            self.check(run_step, variables)
        else:
            self._own.save(run_step, variables, progress, before)

    def check(self, run_step: int, variables: list[Any]) -> None:
        """Check that all values are finite, as a checkpoint needs them.

        Raises:
            Diverged: a value is not.
        """
        check_finite(((variable, variable.numpy()) for variable in variables), run_step)

    def close(self) -> None:
        """Wait until all checkpoints are on disk."""
        if self._own is not None:
            self._own.close()

    def restore_latest(self, variables: list[Any]) -> Progress | None:
        """Restore the latest checkpoint that rank 0 can read, on all ranks; return None if there is none."""
        found = None if self._own is None else self._own.restore_latest(variables)
        told = self._ranks.value_of_first(None if found is None else asdict(found))
        if told is None:
            return None
        self._ranks.variables_of_first(variables)
        return Progress(**told)

    def restore_best(self, epoch: int, variables: list[Any]) -> None:
        """Restore the best model, that of ``epoch``, on all ranks."""
        if self._own is not None:
            self._own.restore_best(epoch, variables)
        self._ranks.variables_of_first(variables)
