"""model promote, aliases and rollback from the command line, on made-up runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardmill.flows import cli
from shardmill.training.promotion.purged import AffectedRun, mark_runs
from tests.samples.training.finished_runs import FinishedRuns


class Commands:
    """Commands on the runs "one" and "two"; "two" is better."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.made = FinishedRuns(folder)
        self.made.run("one", 2, lambda rows: rows % 3 != 0)
        self.made.run("two", 2, lambda rows: rows % 10 != 0)
        self._capsys = capsys

    def __call__(self, *arguments: str, status: int = 0) -> str:
        """Run a command; return its output, or its error output if it should fail."""
        command = [*arguments, "--runs", str(self.made.runs)]
        command += ["--root", str(self.made.root)] if arguments[1] not in ("aliases", "rollback") else []
        said = cli.run(command)
        captured = self._capsys.readouterr()
        assert said == status, captured.err
        return captured.out if status == 0 else captured.err

    def holder(self) -> str:
        found: dict[str, Any] = json.loads(self("model", "aliases", "set@production", "--json"))
        return str(found["aliases"][0]["run"])


@pytest.fixture
def commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(tmp_path, capsys)


def test_the_way_of_an_alias(commands: Commands) -> None:
    assert "No aliases under" in commands("model", "aliases")
    assert commands("model", "promote", "one").startswith("set@production is now one\n  the first model")
    assert "set@production is now two (before: one)\n  better beyond the noise" in commands(
        "model", "promote", "two"
    )
    assert "two has set@production already" in commands("model", "promote", "two")
    said = commands("model", "rollback", "set@production", "--reason", "wrong at night")
    assert said.startswith("set@production is now one (before: two)")
    assert commands.holder() == "one"
    assert "it was rolled back on" in commands("model", "promote", "two")
    commands("model", "promote", "two", "--reason", "mended")
    assert commands.holder() == "two"
    history = commands("model", "aliases", "set")
    assert "reason: wrong at night" in history
    assert "kept: two" in history


def test_a_rollback_takes_an_alias_as_an_option(commands: Commands) -> None:
    for run in ("one", "two"):
        commands("model", "promote", run, "--alias", "staging", "--reason", "try it")
    assert commands("model", "rollback", "set", "--alias", "staging").startswith("set@staging is now one")
    assert "no run under" in commands("evaluate", "set@production", status=2)


def test_a_model_that_learned_from_purged_records_is_listed_as_such(commands: Commands) -> None:
    commands("model", "promote", "one")
    mark_runs(commands.made.runs, [AffectedRun("one", "set@2", 3, 0)], {"a" * 16})
    assert "trained on 3 purged records" in commands("model", "aliases")
    assert "trained on 3 purged records" in commands("model", "aliases", "set")
    (record,) = json.loads(commands("model", "aliases", "set", "--json"))["aliases"][0]["history"]
    assert record["num_purged"] == 3


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["model", "promote", "three"], "no training run 'three'"),
        (["model", "promote", "one", "--alias", "Best"], "'Best' cannot name an alias"),
        (["model", "promote", "one", "--set", "metrik=loss"], "did you mean 'metric'?"),
        (["model", "promote", "one", "--set", "confidence=1"], "confidence"),
        (["model", "promote", "one", "--reason", " "], "the reason is empty"),
        (["model", "rollback", "set@production"], "no run had the alias set@production before"),
        (["model", "aliases", "other"], "no run under"),
    ],
)
def test_mistakes_are_named(commands: Commands, arguments: list[str], told: str) -> None:
    assert told in commands(*arguments, status=2)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--promote"], "--train-when and --promote go with --train"),
        (["--train-when", "new=3"], "--train-when and --promote go with --train"),
        (["--train", "--train-when", "never"], "'never' is no condition"),
    ],
)
def test_a_schedule_says_which_options_go_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], told: str
) -> None:
    assert cli.run(["schedule", "add", str(tmp_path), "--dataset", "d", "--every", "1h", *more]) == 2
    assert told in capsys.readouterr().err
