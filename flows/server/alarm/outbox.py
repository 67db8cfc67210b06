"""Files of the alarm: its memory, and messages that wait to be sent, so that both survive any process.

::

    SHARDMILL_HOME/alarm/outbox/<digest>.json

A message is tried again after 5, 10, 20, 40, 60, 60, ... seconds until its destination takes it; after a
week it is given up. Messages to one destination keep their order; a destination that does not answer holds
up no other one.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from shardmill.flows import home
from shardmill.flows.problems import Problem, close_problem, open_problem, open_problems
from shardmill.flows.server.alarm.destinations import LOG, Destination, Message, NotSent, send
from shardmill.infra.digests import digest_of
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.json_files import decode_json, read_json, write_json
from shardmill.infra.readable import counted

V = TypeVar("V")


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


class KeptFile(Generic[V]):
    """Keeps a value over restarts, in a JSON file below SHARDMILL_HOME/alarm.

    Args:
        name: name of the file.
        shape: the type of the value.
        without: the consequence of a damaged file, for the log.
    """

    def __init__(self, name: str, shape: type[V], without: str) -> None:
        self._name, self._shape, self._without = name, shape, without

    @property
    def path(self) -> Path:
        """Path of the file."""
        return home.alarm_folder() / self._name

    def read(self, default: V) -> V:
        """Return the value; the default if there is none, or if the file is damaged, which is logged."""
        if not self.path.exists():
            return default
        try:
            return read_json(self.path, self._shape, "delete it")
        except CorruptDataError as error:
            LOG.warning("%s, so %s", error.message, self._without)
            return default

    def write(self, value: V) -> None:
        """Keep a value, at once or not at all."""
        write_json(self.path, value)
