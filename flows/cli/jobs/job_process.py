"""Run a job in a child process without Prefect: show its progress and return its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def result_of(command: Sequence[str], on_line: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Run a job's command to its end.

    Args:
        command: argv of a process that emits the events of shardmill.infra.progress.
        on_line: Called with each line that the process prints; None drops them.

    Returns:
        The job's result.

    Raises:
        ShardmillError: The job reported an error.
        ChildDied: The job ended without a result.
    """
    from shardmill.infra.processes.children import run_child
    from shardmill.infra.progress import TerminalProgress

    with TerminalProgress() as show:
        return run_child(command, on_event=show, on_line=on_line).reported()
