"""Starting a job under the guard: its process, and the journal that it shares with this one.

Apart from what watches over it (beam_jobs.guard.supervise), so that a command can start its job before it has
loaded what it needs itself, and both load side by side.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from beam_jobs.guard.journal import Journal
from infra.children import StartedChild, start_child


@dataclass(frozen=True)
class StartedJob:
    """A job that runs, and waits on its standard input for what it is to do.

    Attributes:
        child: its process.
        journal: of the images that it has in work.
    """

    child: StartedChild
    journal: Journal


@contextlib.contextmanager
def start_job(
    argv: Sequence[str], env: Mapping[str, str] | None = None, pass_fds: Sequence[int] = ()
) -> Iterator[StartedJob]:
    """Start a job; where it is still running when the block ends, it is ended by force.

    Args:
        argv: a command that adopts the journal, and reads what it is to do.
        env: variables on top of this process's own.
        pass_fds: more descriptors that it inherits, under their numbers.
    """
    with Journal() as journal:
        variables = {**(env or {}), **journal.env}
        with start_child(argv, env=variables, pass_fds=(journal.fd, *pass_fds), has_input=True) as child:
            yield StartedJob(child, journal)
