"""Messages that wait to be sent: a file each, so that they survive the end of any process.

::

    SHARDMILL_HOME/alarm/outbox/<digest>.json

A message is tried again after 5, 10, 20, 40, 60, 60, ... seconds until its destination takes it; after a
week it is given up. Messages to one destination keep their order; a destination that does not answer holds
up no other one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from shardmill.flows import home
from shardmill.flows.problems import Problem, close_problem, open_problem, open_problems
from shardmill.flows.server.alarm.destinations import Destination, Message, NotSent, send
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.json_files import decode_json, write_json
from shardmill.infra.readable import counted

LOG = logging.getLogger("shardmill.alarm")

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 5.0, 60.0
_KEPT_SECONDS = 7 * 86400.0
# A message that waits so long is a problem: a receiver may be restarting.
_PROBLEM_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that waits.

    Attributes:
        to: name of its destination.
        message: the message.
        since: when it was put here (seconds since 1970).
    """

    to: str
    message: Message
    since: float


def put(message: Message, to: Destination, key: str) -> None:
    """Have a message sent.

    Args:
        message: the message.
        to: whom to send it.
        key: tells the happening from others: a message of the same key that still waits is replaced.
    """
    one = Waiting(to.name, message, time.time())
    write_json(_folder() / f"{digest_of([key, to.name])}.json", one)


def waiting() -> dict[str, list[tuple[Path, Waiting]]]:
    """Name of a destination -> its messages, oldest first. A damaged file is put aside."""
    found: dict[str, list[tuple[Path, Waiting]]] = defaultdict(list)
    for path in _folder().glob("*.json"):
        try:
            one = decode_json(path.read_bytes(), Waiting, str(path), "it is put aside")
        except FileNotFoundError:
            continue
        except (OSError, CorruptDataError) as error:
            LOG.warning("%s is not a message: %s", path, error)
            path.replace(path.with_suffix(".unreadable"))
            continue
        found[one.to].append((path, one))
    return {to: sorted(each, key=lambda pair: pair[1].since) for to, each in found.items()}


def _folder() -> Path:
    folder = home.alarm_folder() / "outbox"
    folder.mkdir(exist_ok=True)
    return folder


@dataclass
class _Tries:
    """The recent attempts to send to one destination."""

    failures: int = 0
    not_before: float = 0.0
    thread: threading.Thread | None = None


@dataclass
class Sender:
    """Sends the waiting messages, on one thread for each destination.

    Attributes:
        send: sends a message to a URL.
        clock: seconds that never go back.
    """

    send: Callable[[str, Message], None] = send
    clock: Callable[[], float] = time.monotonic
    _tries: dict[str, _Tries] = field(default_factory=lambda: defaultdict(_Tries))

    def look(self, destinations: Mapping[str, Destination]) -> None:
        """Begin to send the messages that are due. Messages to a removed destination are deleted."""
        for problem in open_problems():  # a message that was on its way may have failed after the removal
            if problem.kind == "notification" and problem.subject not in destinations:
                close_problem("notification", problem.subject)
        for to, messages in waiting().items():
            tries = self._tries[to]
            if to not in destinations:
                for path, _ in messages:
                    path.unlink(missing_ok=True)
            elif self.clock() >= tries.not_before and (tries.thread is None or not tries.thread.is_alive()):
                work = (destinations[to], messages, tries)
                tries.thread = threading.Thread(
                    target=self.deliver, args=work, name=f"send {to}", daemon=True
                )
                tries.thread.start()

    def deliver(
        self, to: Destination, messages: list[tuple[Path, Waiting]], tries: _Tries | None = None
    ) -> None:
        """Send these messages in their order, until one is not taken."""
        tries = tries or self._tries[to.name]
        for path, one in messages:
            try:
                self.send(to.url, one.message)
            except NotSent as error:
                self._failed(to, messages, tries, str(error))
                return
            path.unlink(missing_ok=True)
        tries.failures = 0
        close_problem("notification", to.name)

    def _failed(self, to: Destination, messages: list[tuple[Path, Waiting]], tries: _Tries, why: str) -> None:
        pause = min(_FIRST_PAUSE_SECONDS * 2.0**tries.failures, _LONGEST_PAUSE_SECONDS)
        tries.failures += 1
        tries.not_before = self.clock() + pause
        now = time.time()
        for path, one in messages:
            if now - one.since > _KEPT_SECONDS:
                LOG.warning("gave up a message to %s: %s", to, asdict(one.message))
                path.unlink(missing_ok=True)
        LOG.warning("%s to %s cannot be sent: %s", counted(len(messages), "message"), to, why)
        since = min(one.since for _, one in messages)
        if now - since >= _PROBLEM_SECONDS:
            text = f"{counted(len(messages), 'message')} to {to} cannot be sent: {why}"
            remedy = f"try it: shardmill notify --test; take it back: shardmill notify --remove {to.name}"
            open_problem(Problem("notification", to.name, text, remedy, since=since))
