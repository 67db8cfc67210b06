"""Keep the open problems of this platform, of which people are told although no run failed.

Each is a file below SHARDMILL_HOME/problems, which exists while the problem does. So every process of the
platform can open and close one, and the page and `shardmill status` can show all, also while Prefect's server
hangs. Four kinds of problem are known::

    source         the folder of a schedule or an inbox cannot be listed, or has become empty
    schedule       a schedule cannot run, or nothing takes up its runs
    service        a process of `shardmill up` hangs, or cannot be started
    notification   a message to people cannot be sent
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from shardmill.flows import home
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import CorruptDataError, EnvironmentFault
from shardmill.infra.json_files import read_json, write_json

Kind = Literal["source", "schedule", "service", "notification"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of the platform.

    Attributes:
        kind: what it is a problem of.
        subject: which one, such as ``/data/photos`` or ``the worker``.
        text: what is wrong, a sentence.
        remedy: what a person can do.
        since: when it was first seen (seconds since 1970).
    """

    kind: Kind
    subject: str
    text: str
    remedy: str = ""
    since: float = 0.0

    @property
    def key(self) -> str:
        """Tells it from other problems; the same while it lasts."""
        return digest_of([self.kind, self.subject])

    def __str__(self) -> str:
        return f"{self.text}; {self.remedy}" if self.remedy else self.text


def open_problem(problem: Problem) -> None:
    """Say that there is a problem. One that is open already keeps its time."""
    before = _read(_path(problem.key))
    since = problem.since or (before.since if before is not None else time.time())
    values = asdict(problem) | {"since": since}
    if before is None or asdict(before) != values:
        write_json(_path(problem.key), values)  # several processes may open the same problem at once


def close_problem(kind: Kind, subject: str) -> None:
    """Say that there is no such problem any more."""
    _path(Problem(kind, subject, "").key).unlink(missing_ok=True)


def set_problems(kind: Kind, problems: Collection[Problem]) -> None:
    """Open these problems of a kind, and close all others of it."""
    for problem in problems:
        open_problem(problem)
    still = {problem.key for problem in problems}
    for problem in open_problems():
        if problem.kind == kind and problem.key not in still:
            close_problem(kind, problem.subject)


def open_problems() -> list[Problem]:
    """The open problems, oldest first. A file that is not a problem of this release is left out."""
    try:
        folder = home.problems_folder()
    except EnvironmentFault:  # nothing of this home could have opened one, such as that of a page alone
        return []
    found = [_read(path) for path in folder.glob("*.json")]
    return sorted((one for one in found if one is not None), key=lambda one: (one.since, one.key))


def _read(path: Path) -> Problem | None:
    with contextlib.suppress(CorruptDataError):
        return read_json(path, Problem, "delete it")
    return None


def _path(key: str) -> Path:
    return home.problems_folder() / f"{key}.json"
