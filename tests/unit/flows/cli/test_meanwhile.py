"""A flow is imported on a thread that the end of a command does not wait for."""

from __future__ import annotations

import threading

from shardmill.flows.cli import import_meanwhile, is_importing


def test_an_import_is_known_while_it_goes_on() -> None:
    goes_on = threading.Event()
    importing = import_meanwhile(goes_on.wait)
    assert is_importing()
    assert importing.daemon
    goes_on.set()
    importing.join()
    assert not is_importing()


def test_an_import_that_fails_is_left_to_the_command() -> None:
    def fail() -> None:
        raise ImportError("no such module")

    import_meanwhile(fail).join()
