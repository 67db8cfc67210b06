"""Messages wait in files until they are taken, in their order."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardmill.flows import home
from shardmill.flows.problems import open_problems
from shardmill.flows.server.alarm import outbox
from shardmill.flows.server.alarm.destinations import Destination, Message, NotSent
from shardmill.flows.server.alarm.outbox import Sender
from tests.samples.waiting import eventually

HOOK = Destination("http://127.0.0.1/hook", frozenset({"failed"}))
OTHER = Destination("http://127.0.0.1/other", frozenset({"failed"}))


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path / "home"))


class Receiver:
    """Takes messages unless its URL is among those that are away; with a clock that the test moves on."""

    def __init__(self) -> None:
        self.away: set[str] = set()
        self.taken: list[tuple[str, str]] = []
        self.asked, self.now = 0, 0.0
        self.sender = Sender(send=self._send, clock=lambda: self.now)

    def _send(self, url: str, message: Message) -> None:
        self.asked += 1
        if url in self.away:
            raise NotSent("it answered with status 500")
        self.taken.append((url, message.text))

    def look(self, *destinations: Destination) -> None:
        """Look once, and wait until what was begun has ended."""
        asked = self.asked
        waited = len(outbox.waiting())
        self.sender.look({one.name: one for one in destinations})
        if waited:
            eventually(lambda: self.asked > asked and not self._works(), 10)

    def _works(self) -> bool:
        import threading

        return any(thread.name.startswith("send ") for thread in threading.enumerate())


def message(text: str) -> Message:
    return Message(text, "failed", "event", "run", "2026-11-26T00:00:00+00:00")


def test_messages_are_sent_once_and_in_their_order() -> None:
    receiver = Receiver()
    for number in range(3):
        outbox.put(message(f"m{number}"), HOOK, f"key {number}")
    outbox.put(message("m2"), HOOK, "key 2")  # found again before it was sent
    receiver.look(HOOK)
    assert [text for _, text in receiver.taken] == ["m0", "m1", "m2"]
    assert outbox.waiting() == {}


def test_what_is_not_taken_waits_longer_and_longer_holds_up_nobody_and_survives() -> None:
    receiver = Receiver()
    receiver.away = {HOOK.url}
    outbox.put(message("first"), HOOK, "1")
    outbox.put(message("first"), OTHER, "1")
    receiver.look(HOOK, OTHER)
    assert receiver.taken == [(OTHER.url, "first")]
    receiver.now = 4.0
    receiver.sender.look({HOOK.name: HOOK})
    assert receiver.asked == 2, "not yet"
    receiver.away = set()
    again = Receiver()  # the process was started again
    again.look(HOOK)
    assert again.taken == [(HOOK.url, "first")]


def test_a_message_that_waits_for_half_a_minute_is_a_problem_until_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver = Receiver()
    receiver.away = {HOOK.url}
    monkeypatch.setattr("time.time", lambda: 1000.0)
    outbox.put(message("first"), HOOK, "1")
    receiver.look(HOOK)
    assert open_problems() == []
    monkeypatch.setattr("time.time", lambda: 1031.0)
    receiver.now = 60.0
    receiver.look(HOOK)
    (problem,) = open_problems()
    assert (problem.kind, problem.subject, problem.since) == ("notification", HOOK.name, 1000.0)
    assert problem.text == f"1 message to {HOOK} cannot be sent: it answered with status 500"
    receiver.away, receiver.now = set(), 200.0
    receiver.look(HOOK)
    assert open_problems() == []


def test_messages_to_somebody_who_was_removed_are_deleted_and_damaged_files_put_aside() -> None:
    receiver = Receiver()
    outbox.put(message("first"), HOOK, "1")
    (home.alarm_folder() / "outbox" / "bad.json").write_text('{"to": []}')
    receiver.sender.look({})
    assert outbox.waiting() == {}
    assert [path.name for path in (home.alarm_folder() / "outbox").iterdir()] == ["bad.unreadable"]


def test_a_message_that_fails_after_its_destination_was_removed_leaves_no_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver = Receiver()
    receiver.away = {HOOK.url}
    monkeypatch.setattr("time.time", lambda: 1000.0)
    outbox.put(message("first"), HOOK, "1")
    (on_its_way,) = outbox.waiting().values()
    receiver.sender.look({})
    monkeypatch.setattr("time.time", lambda: 1031.0)
    receiver.sender.deliver(HOOK, on_its_way)
    receiver.sender.look({})
    assert open_problems() == []
