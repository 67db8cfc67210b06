"""Inboxes are read, and a batch is settled by the end of its run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import httpx
import pytest
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Failed

from shardmill.flows.scheduling.coalescing import SKIPPED
from shardmill.flows.scheduling.failures import POSTPONED
from shardmill.flows.scheduling.inboxes import Inbox, counts_as_new_again, read_inboxes


@pytest.mark.parametrize(
    ("state", "again"),
    [
        (Completed(), False),
        (Completed(name=SKIPPED), True),  # the run that does the same may fail
        (Completed(name=POSTPONED), False),  # tried again after a pause
        (Failed(), False),
        (Cancelled(), False),
        (None, False),  # deleted
    ],
)
def test_a_batch_whose_run_was_skipped_counts_as_new_again(state: State[None] | None, again: bool) -> None:
    assert counts_as_new_again(state) is again


class Variables:
    """The variables of a Prefect server, which gives 200 of them at once, in the place of its client."""

    def __init__(self, values: list[dict[str, Any]]) -> None:
        self.rows = [{"name": str(number), "value": value} for number, value in enumerate(values)]

    def request(self, method: str, path: str, json: dict[str, Any]) -> httpx.Response:
        found = self.rows[json["offset"] :][: min(json["limit"], 200)]
        return httpx.Response(200, json=found, request=httpx.Request(method, f"http://127.0.0.1{path}"))


def test_inboxes_beyond_a_page_of_the_server_are_read() -> None:
    inboxes = [asdict(Inbox("prepare", f"d{number:03d}", {"source": "/in"})) for number in range(400)]
    found = read_inboxes(Variables([*inboxes, {"of": "another release"}]))  # type: ignore[arg-type]
    assert [inbox.dataset for inbox in found] == [f"d{number:03d}" for number in range(400)]
