"""The figures for Prometheus: its own parser reads them back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette

from shardmill.flows.page.app import create_app
from shardmill.flows.page.options import PageOptions
from shardmill.flows.problems import Problem, open_problem
from tests.samples.pages.catalogues import HOSTILE, make_run, publish
from tests.samples.pages.prefect_answers import answering
from tests.samples.pages.served import get

DOCUMENTED = Path(__file__).parents[4] / "docs" / "platform.md"


def values(app: Starlette) -> dict[tuple[str, ...], float]:
    """(name, values of its labels) -> value."""
    families = text_string_to_metric_families(get(app, "/metrics").text)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def test_datasets_runs_and_disks_are_counted(tmp_path: Path) -> None:
    root, runs = tmp_path / "datasets", tmp_path / "runs"
    publish(root, "photos")
    publish(root, "photos", 2, created_at="2026-11-21T02:35:00+00:00")
    (root / "broken" / "manifests").mkdir(parents=True)
    (root / "broken" / "manifests" / "000001.json").write_text("{")
    make_run(runs, "finished")
    make_run(runs, HOSTILE.replace("/", "_"), None)
    found = values(create_app(PageOptions(str(root), str(runs))))
    for key, value in {
        ("shardmill_dataset_versions", "photos"): 2,
        ("shardmill_dataset_broken", "photos"): 0,
        ("shardmill_dataset_broken", "broken"): 1,
        ("shardmill_dataset_records", "photos", "train"): 5,
        ("shardmill_dataset_inputs", "photos", "quarantined"): 1,
        ("shardmill_dataset_inputs", "photos", "record"): 5,
        ("shardmill_dataset_published_timestamp_seconds", "photos"): 1795228500,
        ("shardmill_training_runs", "finished"): 1,
        ("shardmill_training_runs", "training"): 1,
        ("shardmill_training_loss", HOSTILE.replace("/", "_")): pytest.approx(1 / 3),
    }.items():
        assert found[key] == value
    assert (
        0 < found["shardmill_disk_free_bytes", "datasets"] <= found["shardmill_disk_size_bytes", "datasets"]
    )


def test_both_text_formats_are_spoken(app: Starlette) -> None:
    wanted = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answer = get(app, "/metrics", headers=wanted)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert {family.name for family in openmetrics(answer.text)} >= {"shardmill_training_runs"}
    assert get(app, "/metrics").headers["Content-Type"].startswith("text/plain")


def test_a_prefect_that_is_away_is_told_and_hides_nothing_else(places: Path) -> None:
    app = create_app(
        PageOptions(str(places / "datasets"), str(places / "runs"), api_url="http://127.0.0.1:9/api")
    )
    found = values(app)
    assert found["shardmill_prefect_up",] == 0
    assert found["shardmill_dataset_versions", "photos"] == 3
    assert "does not answer" in get(app, "/").text


def test_a_server_that_is_not_understood_is_not_up(places: Path) -> None:
    with answering({"/flow_runs/count": []}) as url:
        found = values(create_app(PageOptions(str(places / "datasets"), str(places / "runs"), api_url=url)))
    assert found["shardmill_prefect_up",] == 0


def test_open_problems_are_told_with_their_time(
    app: Starlette, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path / "home"))
    open_problem(Problem("service", "the worker", "the worker hangs", since=1000.0))
    assert values(app)["shardmill_problem_since_timestamp_seconds", "service", "the worker"] == 1000


def test_every_figure_is_documented(app: Starlette) -> None:
    text = get(app, "/metrics").text
    told = set(re.findall(r"^# HELP (\w+)", text, re.MULTILINE))
    assert told <= set(re.findall(r"`(shardmill_\w+)", DOCUMENTED.read_text()))
