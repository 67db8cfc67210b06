"""The deployments on a real server with a real worker, through the commands that a user has."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.flows import home
from shardmill.flows.flow_runs.showing.page import Keys
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.verify import verify
from shardmill.infra.processes.turns import TURNS_VARIABLE, Turn
from tests.prefect_server.jobs import held_after_a_block, job_processes, resume
from tests.prefect_server.server import RunningServer
from tests.samples.sources.image_folders import write_image_folder, write_many_large_images
from tests.samples.waiting import under_load

NUM_LARGE = 60
# Until nothing is left of a run, on a machine without other work: after a cancel, and after a kill.
CANCELLED_SECONDS = 20
GONE_SECONDS = 10
SMALL_BLOCKS = {"runner": {"block_images": 16}}


def test_a_deployment_run_waits_for_a_command_and_publishes_and_shows_what_it_did(
    shardmill_up: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_image_folder(tmp_path / "photos")
    (source / "circle" / "broken.jpg").write_bytes(b"\xff\xd8\xff but no image")

    parameters = {"source": str(source), "dataset": "shapes", "config": {"failure_budget": 0.1}}
    options = [f"--param={name}={json.dumps(value)}" for name, value in parameters.items()]
    with turn_of_a_command(shardmill_up, monkeypatch):
        done = shardmill_up.prefect("deployment", "run", "prepare/prepare", *options)
        found = re.search(r"UUID: ([0-9a-f-]{36})", done.stdout)
        assert found, done.stdout + done.stderr
        run = found[1]
        assert shardmill_up.logged(run, "waiting until train photos@1 (process", 120), shardmill_up.logs(run)
        assert shardmill_up.get(f"/flow_runs/{run}")["state_type"] == "RUNNING"
        assert Catalog(shardmill_up.root).versions("shapes") == []
    ended = shardmill_up.wait(run)

    assert ended["state_type"] == "COMPLETED", shardmill_up.logs(run)
    assert ended["state"]["message"] == "Published shapes@1"
    version = Catalog(shardmill_up.root).open("shapes@1")
    assert verify(version).problems == []
    assert (version.manifest.accounting.num_records, version.manifest.accounting.num_quarantined) == (40, 1)

    series = Keys.of("shapes", PrepareConfig(failure_budget=0.1)).series
    shown = {artifact["key"].removeprefix(f"{series}-"): artifact for artifact in shardmill_up.artifacts(run)}
    assert set(shown) == {
        "prepare-progress",
        "summary",
        "splits-and-shards",
        "accounting",
        "quarantine",
        "class-balance",
    }
    assert shown["prepare-progress"]["data"] == 100
    assert "published shapes@1" in shown["prepare-progress"]["description"]
    accounting = {row["outcome"]: row["inputs"] for row in json.loads(shown["accounting"]["data"])}
    assert (accounting["records"], accounting["quarantined"], accounting["all inputs"]) == (40, 1, 41)
    shards = json.loads(shown["splits-and-shards"]["data"])
    assert {row["split"]: row["examples"] for row in shards} == {"train": 32, "validation": 4, "test": 4}
    picture = shown["class-balance"]["description"].partition("data:image/svg+xml;base64,")[2]
    assert b"circle" in base64.b64decode(picture.removesuffix(")"))
    assert "`circle/broken.jpg`" in shown["quarantine"]["data"]
    assert "report.html" in shown["summary"]["data"]
    assert shardmill_up.logged(run, "encode"), "progress is in the run's logs"
    tasks = shardmill_up.post("/task_runs/filter", flow_runs={"id": {"any_": [run]}}, limit=50)
    tags = {task["name"]: task["tags"] for task in tasks}
    assert len(tags) == 2
    assert not any(tags.values()), "Prefect fails a task with a tag if the server is away when it begins"


@contextlib.contextmanager
def turn_of_a_command(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hold the turn of this machine as a command of the same user does while its job works."""
    monkeypatch.setenv("SHARDMILL_HOME", server.env["SHARDMILL_HOME"])
    monkeypatch.delenv(TURNS_VARIABLE, raising=False)
    home.take_turns()
    with Turn("train photos@1") as turn:
        turn.take()
        yield


def test_the_runs_of_each_deployment_wait_in_a_queue_that_hands_out_one(shardmill_up: RunningServer) -> None:
    queues = {each["name"]: each for each in shardmill_up.post("/work_pools/shardmill/queues/filter")}
    deployments = shardmill_up.post("/deployments/filter")
    assert len(deployments) >= 7
    for each in deployments:
        assert each["work_queue_name"] == each["name"]
        assert queues[each["name"]]["concurrency_limit"] == each["global_concurrency_limit"]["limit"] == 1


@pytest.mark.slow
def test_runs_get_the_place_of_their_deployment_in_the_order_in_which_they_were_due(
    shardmill_up: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["first", "second", "third"]
    with turn_of_a_command(shardmill_up, monkeypatch):
        runs = []
        for name in names:
            source = write_image_folder(tmp_path / name, per_class=5)
            run = shardmill_up.deployment_run("prepare/prepare", source=str(source), dataset=f"due-{name}")
            runs.append(run)
            if name == "first":
                assert shardmill_up.logged(run, "waiting until", 120), shardmill_up.logs(run)
    ended = [shardmill_up.wait(run) for run in runs]
    assert [run["state_type"] for run in ended] == ["COMPLETED"] * 3
    begins = [run["start_time"] for run in ended]
    assert begins == sorted(begins)
    assert not any("AwaitingConcurrencySlot" in str(run) for run in ended)


def test_deployments_of_an_earlier_release_go_on_and_find_the_code_of_their_user(
    shardmill_up: RunningServer, tmp_path: Path
) -> None:
    """Release 0.1.0 named the flows without ``shardmill.``, also in files that users made of prefect.yaml."""
    source = write_image_folder(tmp_path / "photos", per_class=5)
    (tmp_path / "my_kinds").mkdir()
    (tmp_path / "my_kinds/plain.py").write_text(
        "from shardmill.beam_jobs.sources.kinds.image_folder import list_inputs\n"
    )
    own = {"source": str(source), "config": {"source": {"kind": "my_kinds.plain"}}}
    earlier = {
        "entrypoint": "flows.prepare.prepare",
        "flow_id": shardmill_up.get("/flows/name/prepare")["id"],
        "work_pool_name": "shardmill",
        "enforce_parameter_schema": True,
    }
    daily = {"schedule": {"interval": 86400, "anchor_date": "2100-01-01T00:00:00Z"}, "slug": "nightly:"}
    daily["parameters"] = {**own, "dataset": "nightly", "code": str(tmp_path)}
    for given in (
        {"name": "prepare", "tags": ["shardmill"], "work_queue_name": "prepare"},  # as `shardmill up` left it
        {"name": "nightly", "tags": ["shardmill"], "schedules": [daily]},
        {"name": "of-others", "tags": []},
    ):
        shardmill_up.post("/deployments/", **earlier, **given)
    done = shardmill_up.shardmill("platform", "deploy")
    assert done.returncode == 0, done.stderr
    found = {each["name"]: each for each in shardmill_up.post("/deployments/filter")}
    for name in ("prepare", "nightly"):
        assert found[name]["entrypoint"] == "shardmill.flows.prepare.prepare"
    assert found["of-others"]["entrypoint"] == "flows.prepare.prepare", "not our flow"
    (kept,) = found["nightly"]["schedules"]
    assert kept["parameters"] == daily["parameters"]
    shardmill_up.delete(f"/deployments/{found['of-others']['id']}")

    run = shardmill_up.deployment_run("prepare/nightly", **kept["parameters"])
    lost = shardmill_up.deployment_run("prepare/prepare", **own, dataset="lost")
    ended = shardmill_up.wait(run)
    assert ended["state"]["message"] == "Published nightly@1", shardmill_up.logs(run)
    ended = shardmill_up.wait(lost)
    assert ended["state_type"] == "FAILED"
    assert "there is no module 'my_kinds.plain'" in ended["state"]["message"]
    assert "parameter code" in ended["state"]["message"]
    shardmill_up.delete(f"/deployments/{found['nightly']['id']}")


@pytest.mark.parametrize(
    ("deployment", "parameters", "named"),
    [
        ("prepare/prepare", {"source": "not/absolute", "dataset": "x"}, "source"),
        ("prepare/prepare", {"source": "/data", "dataset": "../x"}, "dataset"),
        ("prepare/prepare", {"source": "/data", "dataset": "x\n"}, "dataset"),
        ("prepare/prepare", {"source": "/data"}, "dataset"),
        (
            "prepare/prepare",
            {"source": "/data", "dataset": "x", "config": {"image": {"size": 1}}},
            "size",
        ),
        ("prepare/prepare", {"source": "/data", "dataset": "x", "config": {"shrad": 1}}, "shrad"),
        ("train/train", {"dataset": "x@new"}, "dataset"),
    ],
)
def test_bad_parameters_are_refused_before_there_is_a_run(
    shardmill_up: RunningServer, deployment: str, parameters: dict[str, object], named: str
) -> None:
    before = shardmill_up.post("/flow_runs/count")
    with pytest.raises(urllib.error.HTTPError) as refused:
        shardmill_up.deployment_run(deployment, **parameters)
    with refused.value as answer:
        assert answer.code == 409
        assert named in answer.read().decode()
    assert shardmill_up.post("/flow_runs/count") == before


def test_a_cancel_takes_the_whole_tree_and_leaves_what_is_done(
    shardmill_up: RunningServer, tmp_path: Path
) -> None:
    source = write_many_large_images(tmp_path / "large", NUM_LARGE)
    parameters = {"source": str(source), "dataset": "large", "config": SMALL_BLOCKS}
    run = shardmill_up.deployment_run("prepare/prepare", **parameters)
    tree = held_after_a_block(source, shardmill_up.root / "large", lambda: shardmill_up.has_ended(run))

    assert shardmill_up.prefect("flow-run", "cancel", run).returncode == 0
    gone, alive = psutil.wait_procs(tree, timeout=under_load(CANCELLED_SECONDS))
    assert shardmill_up.wait(run)["state_type"] == "CANCELLED"
    assert not alive, f"still there: {[process.cmdline() for process in alive]}"
    assert len(gone) >= 2, "the job and its Beam process were both seen"
    assert Catalog(shardmill_up.root).datasets().count("large") == 0, "nothing was published"

    again = shardmill_up.deployment_run("prepare/prepare", **parameters)
    ended = shardmill_up.wait(again)
    assert ended["state_type"] == "COMPLETED", shardmill_up.logs(again)
    version = Catalog(shardmill_up.root).open("large")
    assert version.manifest.accounting.num_records == NUM_LARGE
    assert verify(version).problems == []


@pytest.mark.slow
def test_a_killed_flow_process_takes_the_job_with_it(shardmill_up: RunningServer, tmp_path: Path) -> None:
    source = write_many_large_images(tmp_path / "large", NUM_LARGE)
    run = shardmill_up.deployment_run(
        "pipeline/pipeline", source=str(source), dataset="killed", prepare_config=SMALL_BLOCKS
    )
    tree = held_after_a_block(source, shardmill_up.root / "killed", lambda: shardmill_up.has_ended(run))

    flow_process = next(
        process.parent() for process in tree if "shardmill.beam_jobs.prepare" in process.cmdline()
    )
    assert flow_process is not None
    flow_process.kill()
    resume(tree)  # a stopped process cannot notice that its parent is gone

    _, alive = psutil.wait_procs(tree, timeout=under_load(GONE_SECONDS))
    assert not alive
    assert shardmill_up.wait(run, timeout=60)["state_type"] == "CRASHED"
    (inside,) = shardmill_up.post(
        "/flow_runs/filter", flow_runs={"parent_flow_run_id": {"any_": [run]}}, limit=50
    )
    assert "shardmill" in inside["tags"], "which tells the platform that the run is its own"
    assert shardmill_up.wait(inside["id"], timeout=60)["state_type"] == "CRASHED", "and the run inside it"


@pytest.mark.slow
def test_a_killed_worker_takes_its_runs_with_it_and_is_started_again(
    shardmill_up: RunningServer, tmp_path: Path
) -> None:
    source = write_many_large_images(tmp_path / "large", NUM_LARGE)
    parameters = {"source": str(source), "dataset": "orphaned", "config": SMALL_BLOCKS}
    run = shardmill_up.deployment_run("prepare/prepare", **parameters)
    tree = job_processes(source, lambda: shardmill_up.has_ended(run))

    services = psutil.Process(shardmill_up.pid).children()
    (worker,) = [service for service in services if "worker" in service.cmdline()]
    worker.kill()

    _, alive = psutil.wait_procs(tree, timeout=under_load(GONE_SECONDS))
    assert not alive
    assert shardmill_up.wait(run, timeout=60)["state_type"] == "CRASHED"
    again = shardmill_up.deployment_run("prepare/prepare", **parameters)
    assert shardmill_up.wait(again)["state_type"] == "COMPLETED", shardmill_up.logs(again)


def test_a_second_up_says_that_one_is_running(shardmill_up: RunningServer) -> None:
    second = shardmill_up.shardmill("up", "--port", "0")
    assert second.returncode == 4
    assert f"already running (process {shardmill_up.pid}) at {shardmill_up.ui_url}" in second.stderr
    assert "remedy: use it, or stop it with: shardmill down" in second.stderr
