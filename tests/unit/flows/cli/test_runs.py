"""``shardmill runs``, ``compare`` and beginnings of names, on made-up runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shardmill.flows import cli
from tests.samples.training.finished_runs import FinishedRuns


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> FinishedRuns:
    """Three runs, one at another rate, and one of a release that had no setting of callbacks."""
    made = FinishedRuns(tmp_path_factory.mktemp("runs"), num_judged=8)
    for name, rate in (("set-v2-3f2a", 0.1), ("set-v2-3f90", 0.01), ("set-v2-77cd", 0.1)):
        made.run(name, 2, lambda rows: rows % 3 != 0)
        for file in ("run.json", "environment.json"):
            path = made.runs / name / file
            content = json.loads(path.read_text())
            content["config"]["optimizer"]["learning_rate"] = rate
            if name == "set-v2-77cd":
                del content["config"]["run"]["callbacks"]
            path.write_text(json.dumps(content))
    return made


def run_json(made: FinishedRuns, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert cli.run([*arguments, "--runs", str(made.runs), "--json"]) == 0, capsys.readouterr().err
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_runs_name_the_settings_that_differ_and_their_dates(
    made: FinishedRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = run_json(made, capsys, "runs")["runs"]
    assert {run["run"]: run["settings"] for run in listed} == {
        "set-v2-3f2a": {"optimizer.learning_rate": "0.1"},
        "set-v2-3f90": {"optimizer.learning_rate": "0.01"},
        "set-v2-77cd": {"optimizer.learning_rate": "0.1"},
    }
    assert all(run["changed_at"][:4].isdigit() for run in listed)
    assert cli.run(["runs", "--runs", str(made.runs)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "set@2 small_cnn finished " + listed[0]["changed_at"][:16].replace("T", " ") in said


def test_compare_names_settings_dataset_and_date(
    made: FinishedRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["compare", "set-v2-3f2", "set-v2-3f9", "--runs", str(made.runs)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("first:  set-v2-3f2a  (set@2, 20")
    assert "optimizer.learning_rate 0.1 0.01" in " ".join(said.split())
    assert "run.callbacks" not in said
    found = run_json(made, capsys, "compare", "set-v2-3f2a", "set-v2-77")
    assert (found["second"], found["settings"]) == ("set-v2-77cd", {})


@pytest.mark.parametrize(
    ("named", "error", "remedy"),
    [
        ("set-v2-3f", "is the beginning of 2 runs", "give more of the name"),
        ("set-v2", "set-v2-3f2a, set-v2-3f90, set-v2-77cd", "give more of the name"),
        ("set-v2-3f2aa", "no training run 'set-v2-3f2aa'", "did you mean 'set-v2-3f2a'?"),
        ("", "no training run ''", ""),
    ],
)
def test_a_beginning_that_several_runs_have_is_refused(
    made: FinishedRuns, named: str, error: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["evaluate", named, "--runs", str(made.runs)]) == 2
    said = capsys.readouterr().err
    assert error in said
    assert remedy in said


def test_a_dataset_comes_before_the_beginning_of_a_run(
    made: FinishedRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_json(made, capsys, "show", "set", "--root", str(made.root))["dataset"] == "set"
    shown = run_json(made, capsys, "show", "set-v2-7", "--root", str(made.root))
    assert (shown["run"], shown["settings"]["optimizer"]["learning_rate"]) == ("set-v2-77cd", 0.1)
