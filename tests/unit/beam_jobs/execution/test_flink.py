"""The settings of a Flink cluster become Beam's options, and its jobs are found and cancelled by name."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from shardmill.beam_jobs.config import FlinkConfig, RunnerConfig
from shardmill.beam_jobs.config.runner import runner_overrides
from shardmill.beam_jobs.execution.flink import FlinkCluster, flink_options, only_job
from shardmill.beam_jobs.execution.runners import check_runner
from shardmill.infra.errors import ConfigError, EnvironmentFault


class JobManager(BaseHTTPRequestHandler):
    """The part of Flink's REST interface that is used.

    Attributes:
        jobs: id -> [name, state].
        slots: of the cluster.
    """

    jobs: dict[str, list[str]]
    slots: int
    address: str

    def do_GET(self) -> None:
        answers = {
            "/overview": {"slots-total": self.slots},
            "/jobs/overview": {
                "jobs": [
                    {"jid": job, "name": name, "state": state} for job, (name, state) in self.jobs.items()
                ]
            },
        }
        self._answer(200, answers[self.path])

    def do_PATCH(self) -> None:
        job = self.path.removeprefix("/jobs/").removesuffix("?mode=cancel")
        state = self.jobs[job][1]
        if state in ("FINISHED", "CANCELED"):
            self._answer(409, {})
            return
        self.jobs[job][1] = "CANCELED" if state == "CANCELLING" else "CANCELLING"
        self._answer(202, {})

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def manager() -> Iterator[type[JobManager]]:
    Manager = type("Manager", (JobManager,), {"jobs": {}, "slots": 4})  # noqa: N806
    server = HTTPServer(("127.0.0.1", 0), Manager)
    Manager.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Manager
    server.shutdown()
    thread.join()
    server.server_close()


def cluster(manager: type[JobManager]) -> FlinkCluster:
    return FlinkCluster(manager.address)


@pytest.mark.parametrize(
    ("flink", "says"),
    [
        ({}, "runner.flink.master is missing"),
        ({"master": "http://flink:8081"}, "is not HOST:PORT"),
        ({"master": "flink"}, "is not HOST:PORT"),
        ({"master": "flink:8081", "job_endpoint": "jobs"}, "runner.flink.job_endpoint"),
        ({"master": "flink:8081", "pool_endpoint": "localhost"}, "runner.flink.pool_endpoint"),
    ],
)
def test_addresses_that_are_missing_or_none(flink: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_runner(RunnerConfig(name="flink", flink=FlinkConfig(**flink)))


def test_options_of_the_user_win_and_the_rest_is_explicit() -> None:
    flink = FlinkConfig(master="flink.example.org:8081", environment_cache_millis=7)
    options = flink_options(flink, "job", 6, given={"sdk_worker_parallelism"})
    assert options == [
        "--flink_master=flink.example.org:8081",
        "--job_endpoint=flink.example.org:8099",
        "--job_name=job",
        "--parallelism=6",
        "--environment_cache_millis=7",
        "--environment_type=EXTERNAL",
        "--environment_config=localhost:50000",
    ]
    without_pool = flink_options(flink, "job", 6, given={"environment_type"})
    assert not [option for option in without_pool if "environment_config" in option]


def test_the_options_of_the_command_line_stand_for_settings() -> None:
    assert runner_overrides(None, None) == []
    assert runner_overrides("portable", None) == ["runner.name=portable"]
    assert runner_overrides(None, "f:1") == ["runner.name=flink", "runner.flink.master=f:1"]


def test_the_parallelism_is_that_of_the_cluster(manager: type[JobManager]) -> None:
    assert cluster(manager).parallelism() == 4
    manager.slots = 0
    with pytest.raises(EnvironmentFault, match="has no TaskManager"):
        cluster(manager).parallelism()


def test_left_over_jobs_of_the_same_work_are_cancelled_first(manager: type[JobManager]) -> None:
    manager.jobs |= {
        "1": ["mine-Encode", "RUNNING"],
        "2": ["mine2-Encode", "RUNNING"],
        "3": ["mine-Assemble", "FINISHED"],
    }
    with only_job(cluster(manager), "mine"):
        assert manager.jobs["1"][1] == "CANCELED"
        manager.jobs["4"] = ["mine-Encode", "RUNNING"]
    assert manager.jobs["2"][1] == manager.jobs["4"][1] == "RUNNING"
    assert manager.jobs["3"][1] == "FINISHED"


def test_the_job_of_a_block_that_fails_is_cancelled(manager: type[JobManager]) -> None:
    def fail() -> None:
        with only_job(cluster(manager), "mine"):
            manager.jobs["1"] = ["mine-Encode", "RESTARTING"]
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert manager.jobs["1"][1] == "CANCELED"


@pytest.mark.parametrize(("status", "ends"), [(404, True), (409, True), (403, False)])
def test_only_a_job_that_has_ended_may_refuse_to_be_cancelled(
    manager: type[JobManager], status: int, ends: bool
) -> None:
    manager.jobs["1"] = ["mine-Encode", "RUNNING"]

    def refuse(self: JobManager) -> None:
        self.jobs["1"][1] = "FINISHED"
        self._answer(status, {})

    manager.do_PATCH = refuse  # type: ignore[method-assign]
    if ends:
        assert cluster(manager).cancel("mine") == 1
    else:
        with pytest.raises(EnvironmentFault, match=str(status)):
            cluster(manager).cancel("mine")


def test_a_cluster_on_this_machine_is_asked_without_a_proxy(
    manager: type[JobManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert cluster(manager).parallelism() == 4


def test_a_job_that_does_not_end_is_an_error(manager: type[JobManager]) -> None:
    manager.jobs["1"] = ["mine-Encode", "SUSPENDED"]
    manager.do_PATCH = lambda self: self._answer(202, {})  # type: ignore[method-assign,misc,assignment]
    with pytest.raises(EnvironmentFault, match="does not end"):
        cluster(manager).cancel("mine", seconds=0.3)


def test_a_cluster_that_is_not_there_is_named() -> None:
    with pytest.raises(EnvironmentFault, match=r"127\.0\.0\.1:9 does not answer"):
        FlinkCluster("127.0.0.1:9").parallelism()
