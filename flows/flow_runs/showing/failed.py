"""Show the error, its stage, its remedy and the command that goes on, on the page of a failed run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from shardmill.flows.flow_runs.showing.examples import lost_text
from shardmill.flows.flow_runs.showing.markdown import code, code_block, escaped
from shardmill.flows.flow_runs.showing.page import Keys, RunPage
from shardmill.infra.errors import LockedError, ShardmillError
from shardmill.infra.strict_json import dump_json


def command_of(arguments: Sequence[str], settings: Mapping[str, BaseModel]) -> str:
    """Return a `shardmill` command.

    Args:
        arguments: arguments of the command, without settings.
        settings: prefix of their keys -> settings; those that differ from the defaults become ``--set``.
    """
    words = ["shardmill", *arguments]
    for prefix, model in settings.items():
        for key, value in _leaves(model.model_dump(mode="json", exclude_defaults=True), prefix):
            words += ["--set", f"{key}={value if isinstance(value, str) else dump_json(value)}"]
    return shlex.join(words)


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        key = f"{prefix}.{name}" if prefix else name
        if isinstance(value, Mapping):
            yield from _leaves(value, key)
        else:
            yield key, value


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
        page: the page of the run, which gets the artifacts.
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
    """Return the message of the state Failed: the error and its remedy."""
    remedy = f"\nWhat to do: {error.remedy}" if error.remedy else ""
    return f"{job} {_came(error)}: {error.message}{remedy}"


def _came(error: ShardmillError) -> str:
    return "did not begin" if isinstance(error, LockedError) else "failed"
