"""A job's process under a command, without Prefect: its progress is shown, its result handed on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def result_of(command: Sequence[str], on_line: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Run a job's command to its end.

    Args:
        command: argv of a process that speaks the events of infra.progress.
        on_line: called with each line that it prints; None: its libraries' talk, which nobody needs.

    Returns:
        The job's result.

    Raises:
        ShardmillError: the job's own error. ChildDied: it ended without a result.
    """
    from infra.children import run_child
    from infra.progress import TerminalProgress

    with TerminalProgress() as show:
        return run_child(command, on_event=show, on_line=on_line).reported()
