"""New images lead to a new model in use automatically, on a real server; people can intervene."""

from __future__ import annotations

import base64
import json
import shutil
import time
import urllib.error
from pathlib import Path
from typing import Any

import pytest

from infra.dataset.catalog import Catalog
from tests.prefect_server.postgresql import running_postgresql
from tests.prefect_server.server import RunningServer, started_up
from tests.samples.image_folders import write_image_folder

NAME = "chain"
TRAIN = {"data": {"image_size": 32, "global_batch_size": 16}, "run": {"epochs": 2}}
RULES = {"minimum_examples": 1}


def history(server: RunningServer) -> list[dict[str, object]]:
    done = server.shardmill("aliases", f"{NAME}@production", "--runs", str(server.runs), "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["aliases"]
    records: list[dict[str, object]] = found["history"]
    return records


def test_new_images_become_the_model_in_use_without_a_hand(
    shardmill_up: RunningServer, tmp_path: Path
) -> None:
    run_the_chain(shardmill_up, tmp_path)


@pytest.mark.slow
def test_the_same_chain_runs_on_postgresql(tmp_path: Path) -> None:
    with (
        running_postgresql() as database,
        started_up(tmp_path / "platform", "--database", database.url) as up,
    ):
        run_the_chain(up, tmp_path)


def run_the_chain(shardmill_up: RunningServer, tmp_path: Path) -> None:
    """Ingest, publish, train, compare, promote; then again with more images; then back by hand."""
    source = write_image_folder(tmp_path / "photos")
    parameters = {
        "source": str(source),
        "dataset": NAME,
        "train_config": TRAIN,
        "train_when": {"new_records": 8},
        "promote": True,
        "promotion": RULES,
    }
    first = shardmill_up.deployment_run("pipeline/pipeline", **parameters)
    ended = shardmill_up.wait(first)
    assert f"Trained on {NAME}@1: " in ended["state"]["message"], shardmill_up.logs(first)
    (record,) = history(shardmill_up)
    assert (record["action"], record["trained_on"], record["predecessor"]) == ("promoted", f"{NAME}@1", None)
    assert record["manifest_sha256"] is not None

    more = write_image_folder(tmp_path / "more", per_class=22)
    for path in sorted(more.glob("*/02[01].jpg")):
        shutil.copy(path, source / path.parent.name / f"new-{path.name}")
    waits = shardmill_up.deployment_run("pipeline/pipeline", **parameters)
    ended = shardmill_up.wait(waits)
    assert ended["state"]["message"].startswith("Nothing trained: "), shardmill_up.logs(waits)
    assert "wanted: new>=8" in ended["state"]["message"]
    assert Catalog(shardmill_up.root).versions(NAME) == [1, 2], "published, though not trained on"

    second = shardmill_up.deployment_run(
        "pipeline/pipeline", **{**parameters, "train_when": {"new_records": 1}}
    )
    ended = shardmill_up.wait(second)
    assert f"Trained on {NAME}@2: " in ended["state"]["message"], shardmill_up.logs(second)
    records = history(shardmill_up)
    assert [each["trained_on"] for each in records] == [f"{NAME}@1", f"{NAME}@2"]
    assert records[1]["predecessor"] == record["run"]
    comparison = records[1]["comparison"]
    assert isinstance(comparison, dict)
    assert comparison["dataset"] == f"{NAME}@2"
    low = comparison["figures"]["accuracy"]["low"]
    assert (records[1]["action"] == "promoted") == (low > 0), "the figures decided"
    shown = {artifact["key"]: artifact for artifact in _artifacts_below(shardmill_up, second)}
    assert {f"{NAME}-production-verdict", f"{NAME}-production-comparison"} <= set(shown)
    picture = str(shown[f"{NAME}-production-intervals"]["description"]).partition("base64,")[2]
    assert b"candidate better" in base64.b64decode(picture.removesuffix(")"))

    by_hand = shardmill_up.deployment_run(
        "promote/promote", run=records[1]["run"], reason="I want the new one"
    )
    ended = shardmill_up.wait(by_hand)
    assert ended["state_type"] == "COMPLETED", shardmill_up.logs(by_hand)
    assert history(shardmill_up)[-1]["run"] == records[1]["run"]
    evaluated = shardmill_up.deployment_run("evaluate/evaluate", run=f"{NAME}@production", split="validation")
    ended = shardmill_up.wait(evaluated)
    assert ended["state"]["message"] == f"Evaluated {records[1]['run']} on {NAME}@2, validation"

    back = shardmill_up.shardmill("rollback", f"{NAME}@production", "--runs", str(shardmill_up.runs))
    assert back.returncode == 0, back.stderr
    again = shardmill_up.deployment_run("pipeline/pipeline", **parameters)
    ended = shardmill_up.wait(again)
    assert ended["state"]["message"] == f"Nothing trained: {NAME}@2 was trained on before"
    assert history(shardmill_up)[-1]["action"] == "rolled back", "what a person took back stays so"
    told = {event["event"] for event in _events(shardmill_up)}
    assert {"shardmill.dataset.published", "shardmill.alias.moved"} <= told


def _events(server: RunningServer) -> list[dict[str, Any]]:
    """The events about the dataset and its aliases."""
    prefixes = [f"shardmill.dataset.{NAME}", f"shardmill.alias.{NAME}"]
    found: list[dict[str, Any]] = server.post(
        "/events/filter", filter={"resource": {"id_prefix": prefixes}}, limit=50
    )["events"]
    return found


def test_publishing_starts_a_training_by_itself(shardmill_up: RunningServer, tmp_path: Path) -> None:
    """The event of a new version starts a run, which trains or says why not; a rule can be removed."""
    small = ["--set", "data.image_size=32", "--set", "data.global_batch_size=16", "--set", "run.epochs=1"]
    rule = ["train-when", "eager", "--new-records", "1000", "--promote", "--every", "1d", *small]
    made = shardmill_up.shardmill(*rule)
    assert made.returncode == 0, made.stderr
    listed = shardmill_up.shardmill("train-when", "--json")
    (found,) = json.loads(listed.stdout)["rules"]
    assert (found["dataset"], found["when"], found["every_seconds"]) == (
        "eager",
        {"new_records": 1000},
        86400,
    )

    source = write_image_folder(tmp_path / "photos")
    for version, outcome in ((1, "Test accuracy "), (2, "Not trained: ")):
        published = shardmill_up.deployment_run("prepare/prepare", source=str(source), dataset="eager")
        assert shardmill_up.wait(published)["state"]["message"] == f"Published eager@{version}"
        run = _run_of_an_automation(shardmill_up, version)
        ended = shardmill_up.wait(run["id"])
        assert ended["state"]["message"].startswith(outcome), shardmill_up.logs(run["id"])
        extra = write_image_folder(tmp_path / "more", per_class=21)
        shutil.copy(extra / "circle" / "020.jpg", source / "circle" / "new.jpg")
    history = shardmill_up.shardmill("aliases", "eager", "--runs", str(shardmill_up.runs), "--json")
    assert len(json.loads(history.stdout)["aliases"][0]["history"]) == 1

    assert shardmill_up.shardmill("train-when", "eager", "--remove").returncode == 0
    assert json.loads(shardmill_up.shardmill("train-when", "--json").stdout) == {"rules": []}
    assert shardmill_up.shardmill("train-when", "eager", "--remove").returncode == 2


def _run_of_an_automation(server: RunningServer, number: int) -> dict[str, Any]:
    """The flow run that an automation made, the first or a later one."""

    def made() -> dict[str, Any] | None:
        runs = server.post("/flow_runs/filter", sort="EXPECTED_START_TIME_ASC", limit=200)
        found = [run for run in runs if (run["created_by"] or {}).get("type") == "AUTOMATION"]
        return found[number - 1] if len(found) >= number else None

    deadline = time.monotonic() + 60
    while (run := made()) is None:
        assert time.monotonic() < deadline, "the event started nothing"
        time.sleep(0.3)
    return run


def _artifacts_below(server: RunningServer, run_id: str) -> list[dict[str, object]]:
    """The artifacts of a flow run, of its subflows' runs, and of theirs."""
    found = server.artifacts(run_id)
    for child in server.post(
        "/flow_runs/filter", flow_runs={"parent_flow_run_id": {"any_": [run_id]}}, limit=50
    ):
        found += server.artifacts(child["id"])
    return found


@pytest.mark.parametrize(
    ("deployment", "parameters", "named"),
    [
        ("promote/promote", {"run": "../elsewhere"}, "run"),
        ("promote/promote", {"run": "a", "alias": "Latest!"}, "alias"),
        ("promote/promote", {"run": "a", "rules": {"confidence": 1.5}}, "confidence"),
        ("promote/promote", {"run": "a", "rules": {"metrik": "loss"}}, "metrik"),
        ("evaluate/evaluate", {"run": "a", "split": "all"}, "split"),
        ("train/train", {"dataset": "x", "when": {"new_records": 0}}, "new_records"),
    ],
)
def test_wrong_values_are_refused_by_the_form(
    shardmill_up: RunningServer, deployment: str, parameters: dict[str, object], named: str
) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        shardmill_up.deployment_run(deployment, **parameters)
    with refused.value as answer:
        assert answer.code == 409
        assert named in answer.read().decode()


def test_the_training_with_pytorch_has_a_deployment_of_its_own(shardmill_up: RunningServer) -> None:
    found = shardmill_up.get("/deployments/name/train/train-torch")
    assert found["parameters"] == {"config": {"run": {"framework": "torch"}}}
    assert "config" in found["parameter_openapi_schema"]["properties"]
