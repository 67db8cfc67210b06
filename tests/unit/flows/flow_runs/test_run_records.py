"""Records of runs without a server become flow runs, and a record that cannot hinders no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from shardmill.flows.flow_runs.run_records import RunRecord, take_over_records

ID = UUID(int=1)


class Api:
    """A Prefect API that takes runs, in the place of its client; it refuses those of flow ``refused``."""

    def __init__(self) -> None:
        self.states: list[Any] = []
        self.logs: list[dict[str, Any]] = []

    def create_flow_from_name(self, name: str) -> str:
        return name

    def request(self, method: str, path: str, json: dict[str, Any]) -> httpx.Response:
        status = 422 if json["flow_id"] == "refused" else 201
        return httpx.Response(status, json={"id": str(ID)}, request=httpx.Request(method, f"http://x{path}"))

    def set_flow_run_state(self, _: UUID, state: Any, *, force: bool) -> None:
        assert force
        self.states.append(state)

    def create_logs(self, lines: list[dict[str, Any]]) -> None:
        self.logs += lines


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Api:
    found = Api()

    @contextmanager
    def client(**_: object) -> Iterator[Api]:
        yield found

    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path))
    monkeypatch.setattr("prefect.client.orchestration.get_client", client)
    return found


def keep(flow: str, outcome: str, *, is_unchanged: bool = False) -> None:
    with RunRecord(flow, f"{flow}-photos", {"dataset": "photos"}).kept() as record:
        record.outcome(outcome, is_unchanged=is_unchanged)


def test_a_record_becomes_a_run_that_tells_when_it_ran(api: Api) -> None:
    keep("prepare", "published photos@1")
    assert take_over_records() == 1
    (state,) = api.states
    assert state.name == "Completed"
    assert state.message.startswith("published photos@1 (by a command, 20")
    assert state.message.endswith(" UTC)")
    assert api.logs
    assert take_over_records() == 0


def test_a_run_that_found_nothing_to_do_keeps_that_name(api: Api) -> None:
    keep("prepare", "nothing changed", is_unchanged=True)
    assert take_over_records() == 1
    (state,) = api.states
    assert (state.name, state.is_completed()) == ("Unchanged", True)


@pytest.mark.parametrize("content", [{}, [], {"flow": "prepare", "name": "x", "parameters": {}}])
def test_a_record_of_another_release_is_put_aside(api: Api, content: Any, tmp_path: Path) -> None:
    keep("prepare", "published photos@1")
    bad = tmp_path / "records" / "bad.json"
    bad.write_text(json.dumps(content))
    take_over_records()
    assert len(api.states) == 1, "the other one is taken over"
    assert [path.name for path in bad.parent.iterdir()] == ["bad.unreadable"]


def test_a_record_that_the_server_refuses_is_put_aside(api: Api, tmp_path: Path) -> None:
    keep("refused", "published photos@1")
    keep("prepare", "published photos@2")
    take_over_records()
    assert len(api.states) == 1
    assert len(list((tmp_path / "records").glob("*.unreadable"))) == 1
