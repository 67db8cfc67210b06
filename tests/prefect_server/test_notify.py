"""`shardmill notify`: a webhook and a mail server of this machine hear of what happens, at once."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.prefect_server.server import RunningServer, processes_of, run_command, started_up
from tests.prefect_server.webhook import Hook, Mail, listening
from tests.samples.waiting import eventually

# A run is told two seconds after its end; the rest is for a busy machine.
_TOLD_SECONDS = 60.0
# An automation as earlier releases made it.
_EARLIER_NOTIFY = """
import sys
from pydantic import SecretStr
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import get_client
from prefect.events.actions import CallWebhook
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

name = "shardmill-failed-0123abcd"
block = Webhook(method="POST", url=SecretStr(sys.argv[1]), headers={}).save(name, overwrite=True)
trigger = EventTrigger(expect={"prefect.flow-run.Failed"}, posture=Posture.Reactive, threshold=1)
action = CallWebhook(block_document_id=block, payload="earlier")
with get_client(sync_client=True) as client:
    client.create_automation(AutomationCore(name=name, trigger=trigger, actions=[action]))
"""


def told(heard: list[Any], words: str) -> list[dict[str, Any]]:
    """The messages that a webhook got with these words in their text."""
    messages: list[dict[str, Any]] = [json.loads(body) for _, body in heard]
    return [message for message in messages if words in message["text"]]


def open_kinds(server: RunningServer) -> set[str]:
    """The kinds of the open problems, as `shardmill status` lists them."""
    found = json.loads(server.shardmill("status", "--json").stdout)
    return {problem["kind"] for problem in found["open_problems"]}


def service(server: RunningServer, kind: str) -> psutil.Process:
    """The process of a service of `shardmill up`."""
    found = processes_of(Path(server.env["SHARDMILL_HOME"]))
    return next(
        one for one in found if {"shardmill.flows.server.service_process", kind} <= set(one.cmdline())
    )


@pytest.fixture
def hooked(shardmill_up: RunningServer) -> Iterator[tuple[int, list[Any]]]:
    """A webhook that is told of failures."""
    with listening(Hook) as (port, heard):
        done = shardmill_up.shardmill("notify", f"http://127.0.0.1:{port}/hook?token=a-secret")
        assert done.returncode == 0, done.stderr
        assert "a-secret" not in done.stdout
        name = done.stdout.split()[0]
        try:
            yield port, heard
        finally:
            assert shardmill_up.shardmill("notify", "--remove", name).returncode == 0


def test_a_run_that_fails_or_is_cancelled_is_told_once_by_webhook_and_by_mail(
    shardmill_up: RunningServer, tmp_path: Path, hooked: tuple[int, list[Any]]
) -> None:
    _, hooks = hooked
    absent = tmp_path / 'no "such" folder'
    with listening(Mail) as (mail_port, mails):
        mail = f"mailto://127.0.0.1:{mail_port}?to=team@example.com&from=up@example.com&mode=insecure"
        name = shardmill_up.shardmill("notify", mail).stdout.split()[0]
        try:
            tested = shardmill_up.shardmill("notify", "--test")
            assert tested.returncode == 0, tested.stderr
            assert (len(hooks), len(mails)) == (1, 1)
            run = shardmill_up.deployment_run("prepare/prepare", source=str(absent), dataset="absent")
            assert shardmill_up.wait(run)["state_type"] == "FAILED"
            assert eventually(lambda: len(hooks) > 1 and len(mails) > 1, _TOLD_SECONDS), (hooks, mails)
            late = shardmill_up.deployment_run("prepare/prepare", source=str(absent), dataset="late")
            state = {"type": "CANCELLED", "name": "Cancelled", "message": "by the server"}
            shardmill_up.post(f"/flow_runs/{late}/set_state", state=state, force=True)
            assert eventually(lambda: bool(told(hooks, "by the server")), _TOLD_SECONDS), hooks
        finally:
            assert shardmill_up.shardmill("notify", "--remove", name).returncode == 0
    (message,) = told(hooks, run)
    assert hooks[1][0] == "application/json"
    assert (message["on"], message["event"]) == ("failed", "prefect.flow-run.Failed")
    assert "prepare-absent" in message["text"]
    assert 'no "such" folder' in message["text"], "the message stays whole, and the text valid JSON"
    assert "Subject: Shardmill: failed" in mails[1]
    assert "team@example.com" in mails[1]
    assert len(told(hooks, late)) == 1


@pytest.mark.slow
def test_messages_survive_restarts_and_a_receiver_that_is_away(
    shardmill_up: RunningServer, tmp_path: Path
) -> None:
    with listening(Hook) as (port, _):
        url = f"http://127.0.0.1:{port}/hook"
        name = shardmill_up.shardmill("notify", url).stdout.split()[0]
    runs = []
    try:
        for kind in ("watch", "server"):
            absent = str(tmp_path / kind)
            run = shardmill_up.deployment_run("prepare/prepare", source=absent, dataset=f"absent-{kind}")
            assert shardmill_up.wait(run)["state_type"] == "FAILED"
            runs.append(run)
            service(shardmill_up, kind).kill()
        assert shardmill_up.comes_true(lambda: "notification" in open_kinds(shardmill_up), 120)
        with listening(Hook, port) as (_, heard):
            assert eventually(lambda: all(told(heard, run) for run in runs), 180), heard
            assert [len(told(heard, run)) for run in runs] == [1, 1]
        assert shardmill_up.comes_true(lambda: "notification" not in open_kinds(shardmill_up), 60)
    finally:
        shardmill_up.shardmill("notify", "--remove", name)


@pytest.mark.slow
def test_a_source_that_vanishes_and_a_worker_that_hangs_are_told_within_a_minute(
    shardmill_up: RunningServer, tmp_path: Path, hooked: tuple[int, list[Any]]
) -> None:
    _, heard = hooked
    source = tmp_path / "photos"
    (source / "cats").mkdir(parents=True)
    of_it = ("--dataset", "vanishing")
    assert shardmill_up.shardmill("schedule", "add", str(source), *of_it, "--every", "7d").returncode == 0
    try:
        time.sleep(20)  # it is seen while it is there
        source.rename(tmp_path / "aside")
        gone = f"{source}: it cannot be listed"
        assert eventually(lambda: bool(told(heard, gone)), _TOLD_SECONDS)
        assert gone in shardmill_up.shardmill("status", "--json").stdout
        (tmp_path / "aside").rename(source)
        assert eventually(lambda: len(told(heard, gone)) == 2, _TOLD_SECONDS)
    finally:
        shardmill_up.shardmill("schedule", "remove", *of_it)
    worker = service(shardmill_up, "worker")
    worker.send_signal(signal.SIGSTOP)
    assert eventually(lambda: bool(told(heard, "the worker hangs")), _TOLD_SECONDS)
    assert eventually(lambda: not worker.is_running(), 60)
    assert eventually(lambda: len(told(heard, "the worker hangs")) == 2, 180), "and that it is over"


@pytest.mark.slow
def test_a_schedule_that_prefect_empties_gets_its_parameters_back_and_stays_paused(
    shardmill_up: RunningServer, tmp_path: Path
) -> None:
    of_it = ("--dataset", "emptied")
    (tmp_path / "photos").mkdir()
    assert (
        shardmill_up.shardmill(
            "schedule", "add", str(tmp_path / "photos"), *of_it, "--every", "7d"
        ).returncode
        == 0
    )

    def stored() -> dict[str, Any]:
        deployment = shardmill_up.get("/deployments/name/prepare/prepare")
        (found,) = [one for one in deployment["schedules"] if one["slug"] == "emptied:"]
        schedule: dict[str, Any] = found
        return schedule

    try:
        wanted = stored()["parameters"]
        assert wanted["dataset"] == "emptied"
        for change, is_active in (("pause", False), ("resume", True)):
            done = shardmill_up.prefect("deployment", "schedule", change, "prepare/prepare", stored()["id"])
            assert done.returncode == 0, done.stderr
            assert shardmill_up.comes_true(lambda: stored()["parameters"] == wanted, 60)
            assert stored()["active"] == is_active
    finally:
        shardmill_up.shardmill("schedule", "remove", *of_it)


@pytest.mark.slow
def test_the_notifications_of_earlier_releases_go_on(tmp_path: Path) -> None:
    with listening(Hook) as (port, heard):
        url = f"http://127.0.0.1:{port}/hook"
        with started_up(tmp_path) as server:
            env = {**server.env, "PREFECT_API_URL": server.api_url}
            done = run_command([sys.executable, "-c", _EARLIER_NOTIFY, url], env, 120)
            assert done.returncode == 0, done.stderr
            service(server, "watch").kill()  # it looks for earlier ones when it starts
            assert eventually(lambda: server.post("/automations/filter") == [], 120)
            run = server.deployment_run("prepare/prepare", source=str(tmp_path / "absent"), dataset="absent")
            assert eventually(lambda: bool(told(heard, run)), 180)
        assert len(told(heard, run)) == 1
