"""The tree of commands: its help, its examples, and the names of the last release."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest

from shardmill.flows import cli
from shardmill.flows.cli import root
from shardmill.flows.cli.help import described, one_line, shown, typed, usage
from shardmill.flows.cli.old_names import OLD_NAMES, translated
from shardmill.flows.cli.tree import MODEL, PLATFORM, SCHEDULE, Branch, all_commands, name_of
from tests.documentation.command_lines import problem_of

COMMANDS = dict(all_commands(root()))
EXAMPLES = [example for command in COMMANDS.values() for example in described(command.help)[1]]

# A line of each old name, and what it does now.
OLD_LINES = [
    ("import beans --dataset beans --dry-run", "prepare --as-is beans --dataset beans --dry-run"),
    ("sources", "prepare --help"),
    ("sources --json", "settings source --json"),
    ("balance photos-v1-3f2a --json", "show photos-v1-3f2a --json"),
    ("promote one --alias staging", "model promote one --alias staging"),
    ("aliases photos", "model aliases photos"),
    ("rollback photos@production --root d", "model rollback photos@production"),
    ("rollback photos@production --root=d --key k", "model rollback photos@production"),
    ("rollback photos --alias staging", "model rollback photos --alias staging"),
    ("page --port 8080", "platform page --port 8080"),
    ("reap --every 30s", "platform reap --every 30s"),
    ("deploy --pool cpu", "platform deploy --pool cpu"),
    ("server migrate --database u", "platform server migrate --database u"),
    ("backup kept", "platform backup kept"),
    ("restore kept --replace", "platform restore kept --replace"),
    ("schedule", "schedule list"),
    ("schedule --json", "schedule list --json"),
    ("schedule in --dataset d --every 1h", "schedule add in --dataset d --every 1h"),
    ("schedule --maintain --dataset d --every 1d", "schedule add --maintain --dataset d --every 1d"),
    ("schedule --dataset d --name n --pause", "schedule pause --dataset d --name n"),
    ("schedule --dataset d --resume", "schedule resume --dataset d"),
    ("schedule --remove --dataset d", "schedule remove --dataset d"),
    (
        "train-when d --new-records 1000 --days=7 --drift --promote --every 2h --json",
        "schedule add --dataset d --train --train-when new=1000,days=7,drift --promote --every 2h --json",
    ),
    ("train-when d --new-share 0.1 --recipe finetune",
     "schedule add --dataset d --train --train-when share=0.1 --recipe finetune"),
    ("train-when --json", "schedule list --json"),
    ("train-when d --remove", "schedule remove --dataset d --name train-when"),
    ("profile photos --picture p.svg", "profile photos --out p.svg"),
    ("show photos --augmented a.png", "show photos --augmented --out a.png"),
    ("show photos --augmented=a.png", "show photos --augmented --out a.png"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), OLD_LINES)
def test_old_names_work_with_a_hint(old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(old)
    (name,) = [each for each in OLD_NAMES if each.renewed(words) is not None]
    assert translated(words) == shlex.split(new)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"note: shardmill {name.was} is now: shardmill {name.now}\n")
    assert problem_of(f"shardmill {new}") is None
    assert translated(shlex.split(new)) == shlex.split(new), "the new name is not an old one"
    assert capsys.readouterr().err == ""


def test_every_old_name_has_a_line() -> None:
    tried = {
        name.was for name in OLD_NAMES for old, _ in OLD_LINES if name.renewed(shlex.split(old)) is not None
    }
    assert tried == {name.was for name in OLD_NAMES}


@pytest.mark.parametrize(
    "line", ["rollback photos@2", "rollback photos@latest", "show --augmented photos --out a.png"]
)
def test_names_of_this_release_are_left_alone(line: str) -> None:
    assert translated(shlex.split(line)) == shlex.split(line)


def test_every_command_has_an_example_of_its_own() -> None:
    without = [
        path for path, command in COMMANDS.items()
        if not any(f"{line} ".startswith(f"{path} ") for line in described(command.help)[1])
    ]  # fmt: skip
    # up, down and status are the same under platform.
    assert without == ["shardmill platform up", "shardmill platform down", "shardmill platform status"]


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_the_help_are_right(example: str) -> None:
    assert problem_of(example.partition("  ")[0]) is None


@pytest.mark.parametrize("path", COMMANDS)
def test_help_shows_what_one_types(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*path.split()[1:], "--help"]) == 0
    page = capsys.readouterr().out
    assert page.startswith(f"Usage: {path}")
    assert not re.search(r"<\w+|\{[A-Z]|\\|│", page)
    assert "--json" in page, "each command talks to programs"
    for parameter in shown(COMMANDS[path]):
        assert typed(parameter) in page
        assert "VALUE" not in typed(parameter).split(), "name the value of an option: metavar"


def test_the_first_page_fits_a_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    cli.run(["--help"])
    page = capsys.readouterr().out.splitlines()
    assert len(page) <= 50
    assert max(map(len, page)) <= 80
    assert not any("…" in line for line in page)


@pytest.mark.parametrize("branch", [MODEL, SCHEDULE, PLATFORM], ids=lambda branch: branch.name)
def test_a_group_lists_its_commands(branch: Branch, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([branch.name, "--help"]) == 0
    page = capsys.readouterr().out
    for command in branch.commands:
        assert f"  {name_of(command)} " in page
        assert one_line(COMMANDS[f"shardmill {branch.name} {name_of(command)}"]) in page


def test_usage_names_what_is_needed() -> None:
    assert usage(COMMANDS["shardmill prepare"], "shardmill prepare") == (
        "shardmill prepare SOURCE --dataset NAME [OPTIONS]"
    )
    assert usage(COMMANDS["shardmill diff"], "shardmill diff") == (
        "shardmill diff NAME[@VERSION] [NAME@VERSION] [OPTIONS]"
    )
    assert (
        usage(COMMANDS["shardmill predict"], "shardmill predict")
        == "shardmill predict RUN PATHS... [OPTIONS]"
    )


def test_an_old_name_runs_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    assert cli.run(["aliases", "--runs", str(tmp_path), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {"runs_dir": str(tmp_path), "aliases": []}
    assert said.err == "note: shardmill aliases is now: shardmill model aliases\n"
