"""The requests that a server on loopback answers."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from shardmill.flows.page.access import is_own


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ({"host": "127.0.0.1:4200"}, True),
        ({"host": "localhost:4200"}, True),
        ({"host": "[::1]:4200"}, True),
        ({"host": "localhost:4200", "origin": "http://localhost:4200"}, True),
        ({"host": "localhost:4200", "origin": "http://localhost:4300"}, False),
        ({"host": "localhost:4200", "origin": "http://127.0.0.1:4200"}, False),
        ({"host": "127.0.0.1:4200", "origin": "https://evil.example"}, False),
        ({"host": "127.0.0.1:4200", "origin": "null"}, False),  # a file, or a frame in a sandbox
        ({"host": "evil.example:4200"}, False),
        ({"host": "evil.example:4200", "origin": "http://evil.example:4200"}, False),
        ({"host": "127.0.0.1.evil.example"}, False),
        ({"host": "[::"}, False),
        ({}, False),
    ],
)
def test_only_own_pages_and_programs_on_this_machine_are_answered(headers: dict[str, str], own: bool) -> None:
    assert is_own(Headers(headers)) is own
