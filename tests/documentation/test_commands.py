"""Every command, setting and example of the documentation is one that there is; none of them is run here."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.errors import ConfigError
from tests.documentation.blocks import PAGES, blocks, inline_code
from tests.documentation.command_lines import check_configuration, problem_of, problem_of_settings

# What stands for something that the reader knows: <name>, a|b, "and so on".
_OPEN = re.compile(r"<|…|\.\.\.|\||KEY=")
_SETTING = re.compile(r"--set (?:'([^']+)'|\"([^\"]+)\"|([^\s`'\"]+))")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist_with_their_options_and_settings(page: Path) -> None:
    in_blocks = [(block.place, command) for block in blocks(page) for command in block.commands()]
    first = [(block.place, command) for block in blocks(page) for command in block.run_first.split(";")]
    in_blocks += first
    in_text = [(page.name, code) for code in inline_code(page) if code.startswith(("shardmill ", "make "))]
    concrete = [(place, code) for place, code in in_text if not _OPEN.search(code)]
    problems = {f"{place}: {command}": problem_of(command) for place, command in in_blocks}
    assert {command: problem for command, problem in problems.items() if problem} == {}
    # In a sentence, `shardmill train --framework torch` may leave out what it works on.
    problems = {f"{place}: {command}": problem_of(command) for place, command in concrete}
    wrong = {command: problem for command, problem in problems.items() if problem}
    assert {command: why for command, why in wrong.items() if not why.startswith("Missing ")} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_shell_understands_the_commands(page: Path) -> None:
    script = "\n".join(command for block in blocks(page) for command in block.commands())
    done = subprocess.run(
        ["bash", "-n", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_single_settings_exist(page: Path) -> None:
    texts = [*inline_code(page), *(block.text for block in blocks(page) if block.kind == "text")]
    lines = [line for text in texts for line in text.split("\n")]
    together = [["".join(found) for found in _SETTING.findall(line)] for line in lines]
    concrete = [
        [setting for setting in some if "=" in setting and not _OPEN.search(setting)] for some in together
    ]
    assert [problem for settings in concrete if (problem := problem_of_settings(settings))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_are_python_and_configuration(page: Path) -> None:
    shown: dict[str, Any] = {}
    for block in blocks(page):
        if block.kind == "python" or block.file.endswith(".py"):
            compile(block.text, block.place, "exec")
        elif block.kind == "toml" or block.file.endswith(".toml"):
            shown = check_configuration(block.text, shown)


def test_what_is_not_run_has_a_reason() -> None:
    reasons = [block.not_run for page in PAGES for block in blocks(page) if block.not_run]
    assert all(len(reason) > 8 for reason in reasons)


def test_a_comment_belongs_to_the_next_block_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- not run: needs a server -->\n```\nshardmill up\n```\n\ntext\n\n"
        "<!-- run first: cp a b -->\n```\nshardmill show photos\n```\n\n```\nshardmill gc photos\n```\n"
    )
    found = [(block.not_run, block.run_first) for block in blocks(page)]
    assert found == [("needs a server", ""), ("", "cp a b"), ("", "")]


def test_the_checks_find_faults() -> None:
    assert problem_of("shardmill prepare photos --datasett photos") is not None
    assert problem_of("shardmill prepare photos --dataset photos --set image.sise=3") is not None
    assert problem_of("shardmill train photos --set run.epochs=-1") is not None
    assert problem_of("python -m training.no_such_module") is not None
    assert problem_of("make no-such-target") is not None
    assert problem_of_settings(["image.quality=900"]) is not None
    assert problem_of("shardmill show photos  # a comment") is None
    with pytest.raises(ConfigError):
        check_configuration("[train]\nrun.epoch = 3\n")
