"""Show the error, its stage and its remedy on the page of a failed run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmill.flows.flow_runs.artifacts.examples import lost_text
from shardmill.flows.flow_runs.artifacts.keys import Keys
from shardmill.flows.flow_runs.artifacts.page import RunPage
from shardmill.flows.flow_runs.showing.markdown import code, code_block, escaped
from shardmill.infra.errors import LockedError, ShardmillError

_LOG_LINES = 20
_LINE = 400  # characters of a card


class JobEnd(Exception):
    """The cause of the error that a job and its run failed with.

    Attributes:
        stage: the stage that ran, with how far it was; empty: none had begun.
        lines: the last lines that the job printed.
        lost: the event of inputs that cannot be used; empty: there are none.
    """

    def __init__(
        self, stage: str = "", lines: Sequence[str] = (), lost: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(f"the job ended; {stage}" if stage else "the job ended")
        self.stage = stage
        self.lines = lines
        self.lost = lost or {}


def show_failed(page: RunPage, keys: Keys, job: str, error: ShardmillError, command: str) -> None:
    """Make the artifact of a failed run, and the table of inputs that cannot be used.

    Args:
        page: address of the page of the run.
        keys: keys of the artifacts of the run.
        job: the name of the job.
        error: the error of the run, caused by a ``JobEnd``.
        command: the command that continues the work; empty: there is none.
    """
    text = failure_text(job, error, command)
    page.markdown(keys.key("failure"), text, f"**{job} {_came(error)}**: {escaped(error.message, _LINE)}")


def failure_text(job: str, error: ShardmillError, command: str) -> str:
    """Return the page about a failure, as Markdown."""
    end = error.__cause__ if isinstance(error.__cause__, JobEnd) else JobEnd()
    head, *more = error.message.splitlines() or [""]
    parts = [f"## {escaped(job)} {_came(error)}", f"**What:** {escaped(head)}"]
    if more:
        parts.append(code_block("\n".join(more)))
    if end.stage:
        parts.append(f"**Where:** {escaped(end.stage)}")
    if error.remedy:
        parts.append(f"**What to do:** {escaped(error.remedy)}")
    by_hand = f"{code(command)}, or " if command else ""
    parts.append(f"**To continue:** {by_hand}*Retry* on this page. Finished work is kept.")
    if end.lost:
        parts += ["## Inputs that cannot be used", lost_text(end.lost)]
    if end.lines:
        parts += ["## The end of the log", code_block("\n".join(end.lines[-_LOG_LINES:]))]
    return "\n\n".join(parts)


def state_message(job: str, error: ShardmillError) -> str:
    """Return the message of the state Failed: what failed, and what to do."""
    remedy = f"\nWhat to do: {error.remedy}" if error.remedy else ""
    return f"{job} {_came(error)}: {error.message}{remedy}"


def _came(error: ShardmillError) -> str:
    return "did not begin" if isinstance(error, LockedError) else "failed"
